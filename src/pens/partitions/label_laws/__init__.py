# SPDX-License-Identifier: Apache-2.0
"""Which labels a peer has: one file for each law that the partition product combines."""
