# SPDX-License-Identifier: Apache-2.0
"""The command `pens`: reads arguments, calls the package, and prints results."""
