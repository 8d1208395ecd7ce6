# SPDX-License-Identifier: Apache-2.0
"""A federation of real peers on one machine, and the records of real peers as one run directory."""
