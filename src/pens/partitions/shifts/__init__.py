# SPDX-License-Identifier: Apache-2.0
"""How a cluster's samples differ from others': one file for each shift that the partition product combines."""
