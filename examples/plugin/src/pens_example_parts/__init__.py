# SPDX-License-Identifier: Apache-2.0
"""A method, a partition, a topology and a merge rule, which pens finds by the entry points of this package."""
