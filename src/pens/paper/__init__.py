# SPDX-License-Identifier: Apache-2.0
"""The paper: its tables and figures, their settings and numbers, and whether ours agree with them."""
