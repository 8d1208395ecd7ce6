# SPDX-License-Identifier: Apache-2.0
"""Forging: models that attackers of a simulation send in place of their own (`pens.attacks`).

A forgery is recorded when it is sent, and computed when the models that it is made of are known, like all else. It has
a name of its own, since each receiver gets another one.
"""

from __future__ import annotations

from typing import Any

from pens import rng
from pens.attacks.attack import Attackers, Sending
from pens.learning.context import Context
from pens.learning.jobs import Forging
from pens.protocol.messages import ModelRef, PeerId

_FIRST = 1 << 30  # versions of forgeries begin here: those of trained models count updates


class Forger:
    """Records and computes forgeries."""

    def __init__(self, context: Context, attackers: Attackers | None) -> None:
        self._context, self._names, self.attackers = context, context.names, attackers
        self._num_forged = 0

    def attacks(self, peer: PeerId) -> bool:
        """Whether what this peer sends is forged."""
        return self.attackers is not None and self.attackers.attack.forges and peer in self.attackers.peers

    def record(self, peer: PeerId, own: ModelRef, receiver: ModelRef, searching: bool) -> ModelRef:
        """An attacker sends a model. `own`: its own one; `receiver`: the receiver's. Returns the name of what is sent,
        retained once for the receiver."""
        self._num_forged += 1
        out = ModelRef(peer, _FIRST + self._num_forged)
        for ref in (own, receiver, out, out):
            self._names.retain(ref)
        self._context.jobs.add_forging(Forging(peer, own, receiver, out, searching), self._names.rows)
        return out

    def work_off(self) -> None:
        """Compute what is ready."""
        while jobs := self._context.jobs.take_forgings():
            for job in jobs:
                self._forge(job)

    def _forge(self, job: Forging) -> None:
        assert self.attackers
        stack = self._names.stack
        (own,) = stack.read([self._names.row(job.own)])
        (receiver,) = stack.read(self._names.received_rows([job.receiver]))
        key = rng.key(self._context.rules.seed, "attack", job.peer, job.out.version)
        (row,) = stack.add(self.attackers.sent(Sending(own, receiver, job.searching, key))[None])
        self._names.give_values(job.out, row)
        stack.release(row)
        self._context.jobs.forged(job)
        self._context.jobs.know(job.out)
        self._names.release_all((job.own, job.receiver, job.out))

    def state(self) -> int:
        """How many were forged."""
        return self._num_forged

    def restore(self, state: Any) -> None:
        """Go on after so many."""
        self._num_forged = int(state)
