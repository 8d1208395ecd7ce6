# SPDX-License-Identifier: Apache-2.0
"""The plain average (paper, section 4.1)."""

from __future__ import annotations

from typing import Any

from pens.merging.rule import LinearRule, Merge


class Mean(LinearRule):
    """All models count alike."""

    name = "mean"
    about = "the plain average of all models (paper)"
    is_plain = True
    takes_weights = True

    def weights(self, merge: Merge, segment: str, options: Any) -> None:
        return None
