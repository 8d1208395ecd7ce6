# SPDX-License-Identifier: Apache-2.0
"""Topologies, one file each: which peers can talk to which. `pens.parts.TOPOLOGIES` finds them by name."""
