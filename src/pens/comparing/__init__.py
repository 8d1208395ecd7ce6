# SPDX-License-Identifier: Apache-2.0
"""Compares methods over scenarios and seeds, as one TOML file says, in one table and one picture."""
