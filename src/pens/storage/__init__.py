# SPDX-License-Identifier: Apache-2.0
"""Atomic files, and the run directory."""
