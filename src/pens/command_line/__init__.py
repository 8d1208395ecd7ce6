# SPDX-License-Identifier: Apache-2.0
"""The command `pens`: parsing and printing."""
