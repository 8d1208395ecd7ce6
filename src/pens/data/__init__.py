# SPDX-License-Identifier: Apache-2.0
"""Data sets, and the data that each peer holds."""
