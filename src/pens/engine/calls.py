# SPDX-License-Identifier: Apache-2.0
"""What the replacement layers of a network are told of the current call of the network, beside their inputs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from pens.engine.bits import random_bits
from pens.errors import ModelError

LOOP = (
    'backend = "loop" trains one model after the other instead: --set backend=loop on the command line, pens.run(…, '
    'overrides={"backend": "loop"}), or in the settings file of a run or of a real peer, section [engine]: '
    'backend = "loop"'
)
"""What to do about a network that only a stack cannot run."""


@dataclass
class Call:
    """One call of a network. All replacement layers of the network share this object."""

    key: Tensor | None = None
    """The peer's key for random numbers.  []"""
    draws: int = 0
    """How often random numbers were drawn so far."""
    stacked: bool = False
    """Whether the call is for a stack of models. A model that runs alone uses the author's own layers."""
    real: Tensor | None = None
    """Which samples of the batch are real and no padding; None: all.  [batch] bool"""
    apart: bool = False
    """Whether samples must not see each other: a trial, in which batches have no statistics of their own."""

    def bits(self, count: int) -> Tensor:
        """Fresh uniform integers in [0, 2³²), different for each draw within a forward pass.  → [count]"""
        if self.key is None:
            raise ModelError("dropout in training was called without a key: this is a fault of pens, please report it")
        self.draws += 1
        return random_bits(self.key ^ (self.draws * 0x1E3779B97F4A7C15 % 2**63), count)
