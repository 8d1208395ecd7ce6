# SPDX-License-Identifier: Apache-2.0
"""How many samples each peer has: one file for each law that the partition product combines."""
