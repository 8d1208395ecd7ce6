# SPDX-License-Identifier: Apache-2.0
"""How long things take in virtual time: messages on their way, and training. Configured, never measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Links:
    """The same for all peers, which can communicate at any time (paper, section 5)."""

    latency: float
    """From sending to receiving."""
    training_time: float
    """Duration of an update of `epochs` epochs; of other updates in proportion."""
    epochs: int

    def training_delay(self, epochs: int) -> float:
        return self.training_time * epochs / self.epochs
