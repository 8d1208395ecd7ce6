# SPDX-License-Identifier: Apache-2.0
"""The numbers of peers: what is recorded, computed and remembered, for a simulation or a single real peer."""
