# SPDX-License-Identifier: Apache-2.0
"""Who holds which data: the base class of partitions, and one file for each of them."""
