# SPDX-License-Identifier: Apache-2.0
"""Merge rules: how a peer's own model and the models that it received become one."""
