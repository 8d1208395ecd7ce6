# SPDX-License-Identifier: Apache-2.0
"""Blending: averages that become models of a peer's own, beside the one that it trains."""

from __future__ import annotations

from pens import rng
from pens.learning.context import Context
from pens.learning.executor import Train, Work, train
from pens.learning.inputs import Inputs
from pens.learning.jobs import Blending

_AT_ONCE = 20_000  # blends: bounds the lists of models at any number of peers


class Blender:
    """Works off the blends that are recorded."""

    def __init__(self, context: Context, inputs: Inputs) -> None:
        self._context, self._inputs = context, inputs
        self._names, self._rules = context.names, context.rules

    def work_off(self) -> Work:
        """Compute what is ready, blends of blends included."""
        while jobs := self._context.jobs.take_blendings(self._rules.max_batch or _AT_ONCE):
            yield from self._blend(jobs)

    def _blend(self, jobs: list[Blending]) -> Work:
        """A training of no epochs: what is merged comes out as it is."""
        untrained = [self._untrained(job) for job in jobs]
        merges = [self._inputs.blend(*of) for of in zip(jobs, untrained, strict=True)]
        slots = self._context.slots([job.peer for job in jobs])
        rules, no_keys = self._rules, [0] * len(jobs)
        made = yield from train(Train(merges, slots, no_keys, 0, rules.recipe, merging=rules.merging))
        for job, row, begun in zip(jobs, made.rows, untrained, strict=True):
            self._names.give_values(job.action.out, row)
            for done in (row, *begun):
                self._names.stack.release(done)
            self._context.jobs.blended(job)
            self._context.jobs.know(job.action.out)
            self._names.release_all((job.own, *job.action.models, job.action.out))

    def _untrained(self, job: Blending) -> list[int]:
        """The row of the untrained model that a blend asks for; none where it asks for none."""
        if not job.action.untrained:
            return []
        network, stack = self._context.executor.engine.network, self._names.stack
        model = network.new_row(rng.key(self._rules.seed, "init", *job.action.untrained))
        return stack.add(model[None].to(stack.device))
