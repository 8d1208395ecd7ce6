# SPDX-License-Identifier: Apache-2.0
"""How long things take in virtual time: messages on their way, and training. Configured, never measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Links:
    """All peers alike: the paper's assumption (section 5, "able to communicate at any time")."""

    latency: float
    """From sending to receiving."""
    training_time: float
    """Of an update of `epochs` epochs; others in proportion."""
    epochs: int

    def training_delay(self, epochs: int) -> float:
        return self.training_time * epochs / self.epochs
