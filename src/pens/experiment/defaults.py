# SPDX-License-Identifier: Apache-2.0
"""What is run where a user names nothing else. Light to import, so that the help can tell it."""

from __future__ import annotations

DEFAULT_PRESET = "digits"
"""The settings that are run by default."""
DEFAULT_METHODS: tuple[str, ...] = ("local", "random", "pens", "oracle")
"""The methods that `pens run` compares by default."""
PAPERS_METHOD = "pens"
"""The method that the paper proposes, and that real peers follow by default."""
