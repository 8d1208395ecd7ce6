# SPDX-License-Identifier: Apache-2.0
"""Run directories → tables and pictures."""
