# SPDX-License-Identifier: Apache-2.0
"""`dac-var`: DAC with a preference that grows over the rounds (Listo Zec et al. 2022, arXiv:2206.08839).

Early losses say little, so peers begin by asking nearly at random, and become choosy later: τ is

    τ_t = 2a / (1 + exp(−b t)) − a + 1,        a = tau, b = tau_growth

which grows from 1 to a + 1. As in the authors' code, t = 0 where a peer draws for its second round, since it knows
nobody before its first.
"""

from __future__ import annotations

import math
from dataclasses import replace

from pens.methods.dac import Asking, Dac
from pens.protocol.plan import Plan
from pens.settings.tree import RunSettings


class Narrowing(Asking):
    """Asking, more and more of those whose models fit."""

    def tau(self) -> float:
        own = self.peer.plan.own
        return growing(own.tau, own.tau_growth, max(0, self.peer.updates - 1))


def growing(a: float, b: float, t: int) -> float:
    """τ_t, from 1 to a + 1."""
    return 2 * a / (1 + math.exp(-b * t)) - a + 1


class DacVar(Dac):
    """DAC whose τ grows with the rounds."""

    name = "dac-var"
    about = "dac whose preference for peers with fitting models grows over the rounds, from nearly none"
    colours = ("#a8327d", "#f0a0d0")

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        return replace(super().plan(settings, train, val, num_peers), behaviours={"gossiping": Narrowing})
