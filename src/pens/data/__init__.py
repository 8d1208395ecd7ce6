# SPDX-License-Identifier: Apache-2.0
"""Data sets, and how peers share them."""
