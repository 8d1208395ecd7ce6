# SPDX-License-Identifier: Apache-2.0
"""One local update of K peers: a training step that is repeated, and on a GPU recorded once and replayed.

Everything that changes from step to step lies in tensors that keep their place in memory: the models, the optimizer's
state, the tables of samples to visit, and the number of the step. A step reads the row of the tables that belongs to
its number, and then increases that number. The host decides nothing between steps and reads nothing back, so that on a
GPU one step can be recorded once as a CUDA graph and then replayed: one launch per step in place of some hundred, and
no Python in between. On a CPU the same step is simply called.

A recorded step works for one number of peers only. Numbers of peers are therefore rounded up to a few sizes; the rows
in excess repeat a peer, and their results are discarded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pens.engine.batches import Batch, SampleStack, Visits
from pens.engine.devices import has_kernels
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import CORRECTED, Moments, Recipe, new_optimizer
from pens.tasks.classification import Classification
from pens.tasks.task import Task

_WARM_UPS = 3  # steps before a capture, in which libraries choose their algorithms


class StackUpdate:
    """The tensors of an update of `num_models` peers over `num_steps` steps, and the step itself."""

    def __init__(
        self,
        network: StackedNetwork,
        data: SampleStack,
        recipe: Recipe,
        num_models: int,
        num_steps: int,
        task: Task | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        """`only`: the names of the tensors that change; None: all."""
        device = data.device
        self._task = task or Classification()
        self.network, self.data = network, data
        layout = network.in_work
        self._places = [place for place in layout.trained if only is None or place.name in only]
        everything = (*layout.trained, *layout.kept)
        self._still = () if only is None else layout.ranges([p.name for p in everything if p.name not in only])
        """Columns that stand still: an optimizer changes them, too (weight decay), and each step puts them back."""
        self.ragged = data.is_ragged(recipe.batch_size)
        self.rows = torch.zeros((num_models, network.in_work.size), device=device)
        self._before = torch.zeros_like(self.rows if self._still else self.rows[:0])
        """The rows as they were before the update, where some columns stand still."""
        self.gradients = torch.zeros_like(self._learned)
        self.optimizer = new_optimizer(recipe, self._learned, network.level == "compiled")
        self.slots = torch.zeros((num_models, 1), dtype=torch.int64, device=device)
        self.at = torch.zeros(1, dtype=torch.int64, device=device)
        batch = (num_steps, num_models, recipe.batch_size)
        self.visits = Visits(
            index=torch.zeros(batch, dtype=torch.int64, device=device),
            weight=torch.zeros(batch, device=device),
            keys=torch.zeros(batch[:2], dtype=torch.int64, device=device),
            active=torch.zeros(batch[:2], dtype=torch.bool, device=device),
            taken=torch.zeros(batch[:2], dtype=torch.int64, device=device),
            share=torch.zeros(batch[:2], device=device),
        )
        self.loss = torch.zeros(num_models, device=device)
        self.health = torch.zeros(num_models, device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._fused = has_kernels(device) and self._task.is_cross_entropy
        self._cuts = network.cut is not None and not data.has_features

    @property
    def _learned(self) -> Tensor:
        return self.rows[:, : self.network.in_work.num_trained]

    def record(self, pool: Any) -> None:
        """Capture the step as a CUDA graph. This overwrites what the tensors held."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                self._rewind()
                self.step()
            self._rewind()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=pool)  # `torch.cuda.graph` also empties the allocator's cache, each time
            try:
                self.step()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = graph

    def run(
        self, rows: Tensor, slots: Sequence[int], visits: Visits, moments: Moments | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Take all steps.  rows [peer, size] → new rows, the mean loss over the last epoch [peer], and, where
        `moments` were given, the optimizer's moments after the update [peer, moment, size]

        The loss is not finite where the loss of any step or any resulting weight was not finite.
        """
        self.rows.copy_(self.network.to_work(rows))
        if self._still:
            self._before.copy_(self.rows)
        self.slots.copy_(torch.tensor(slots, device=rows.device)[:, None])
        for name, table in vars(visits).items():
            getattr(self.visits, name).copy_(table)
        self._rewind()
        if moments:
            self._recall(moments)
        self.visits.taken.clamp_(max=CORRECTED)
        for _ in range(len(visits)):
            self._graph.replay() if self._graph else self.step()
        healthy = (self.health + self.rows.abs().amax(1)).isfinite()
        new_rows = self.network.from_work(self.rows)
        return new_rows, torch.where(healthy, self.loss, torch.nan), self._remembered() if moments else None

    def _rewind(self) -> None:
        """Reset the step number, the losses and the optimizer's moments to zero."""
        for counter in (self.at, self.loss, self.health, *self.optimizer.moments):
            counter.zero_()

    def _recall(self, moments: Moments) -> None:
        for moment, kept in zip(self.optimizer.moments, moments.values.unbind(1), strict=True):
            moment.copy_(self.network.to_work(kept)[:, : moment.shape[1]])
        self.visits.taken.add_(torch.tensor(moments.steps, device=self.rows.device))

    def _remembered(self) -> Tensor:
        """The optimizer's moments in the layout of stored rows; zero for numbers that are not trained.
        → [peer, moment, size]"""
        kept = torch.zeros((len(self.rows), len(self.optimizer.moments), self.network.size), device=self.rows.device)
        for place, moment in enumerate(self.optimizer.moments):
            in_work = torch.zeros_like(self.rows)
            in_work[:, : moment.shape[1]] = moment
            kept[:, place] = self.network.from_work(in_work)
        return kept

    def step(self) -> None:
        """One batch per peer: forward, backward, optimizer."""
        batch = self._weighted(self._batch())
        kept = self.rows[:, self.network.in_work.num_trained :]
        before = kept.clone() if self.ragged else kept
        self._find_gradients(batch)
        self.optimizer.step(self._learned, self.gradients, batch.taken, batch.active if self.ragged else None)
        if self.ragged:  # a peer that has no samples left in this epoch keeps its buffers
            kept.copy_(torch.where(batch.active[:, None], kept, before))
        for columns in self._still:
            self.rows[:, columns] = self._before[:, columns]

    def _batch(self) -> Batch:
        if self._fused:
            from pens.engine.fused_step import fetch  # needs Triton, which comes with PyTorch's CUDA builds

            return fetch(self.at, self.slots, self.visits, self.data)
        visit = self.visits.at(self.at)
        x, y = (table[self.slots, visit.index] for table in (self.data.x, self.data.y))
        return Batch(x, y, visit.weight, visit.keys, visit.active, visit.taken, visit.share)

    def _weighted(self, batch: Batch) -> Batch:
        """The batch, with how much each of its samples counts."""
        if self.data.weights is None:
            return batch
        index = self.visits.index.index_select(0, self.at)[0]
        return replace(batch, weight=batch.weight * self.data.weights[self.slots, index])

    def _find_gradients(self, batch: Batch) -> None:
        """Run forward and backward, and leave each peer's gradient in `gradients`."""
        layout = self.network.in_work
        tensors = layout.tensors(self.rows)
        # .data, not detach: the network may write to its buffers, which share the rows' memory but no weight's
        tensors |= {p.name: tensors[p.name].data for p in layout.trained}
        leaves = [tensors[p.name].requires_grad_() for p in self._places]
        self.network.gradient_buffers.offer(layout, self.gradients)
        real = batch.weight > 0 if self.network.has_batch_norm else None
        x = self.network.features(batch.x) if self._cuts else batch.x
        scores = self.network.logits(tensors, x, batch.keys, train=True, real=real)
        slopes = self._measure(scores.detach(), batch)
        gradients = torch.autograd.grad(scores, leaves, slopes)
        self.network.gradient_buffers.collect(self._places, self.gradients, gradients)

    def _measure(self, scores: Tensor, batch: Batch) -> Tensor:
        """Add up each peer's loss, count the step, and return the loss's gradient with respect to the scores.
        scores [peer, batch, class] → [peer, batch, class], or with the axes that the task has"""
        if not self._task.is_cross_entropy:
            scores.requires_grad_()
            losses = (sample_losses(scores, batch.y, self._task) * batch.weight).sum(1)
            self._count(losses.detach(), batch)
            (slopes,) = torch.autograd.grad(losses.sum(), scores)
            return slopes
        if self._fused:
            from pens.engine.fused_step import can_measure, measure

            if can_measure(*scores.shape[1:]):
                return measure(scores, batch, self.health, self.loss, self.at)
        likely, right = scores.log_softmax(-1), batch.y[..., None]
        losses = -(likely.gather(-1, right)[..., 0] * batch.weight).sum(1)
        self._count(losses, batch)
        slopes = likely.exp().scatter_add_(-1, right, torch.full_like(likely[..., :1], -1.0))
        return slopes.mul_(batch.weight[..., None])

    def _count(self, losses: Tensor, batch: Batch) -> None:
        """Add up what each peer's batch lost, and count the step.  losses [peer]"""
        self.health += losses
        self.loss += losses * batch.share
        self.at += 1


def sample_losses(outputs: Tensor, y: Tensor, task: Task) -> Tensor:
    """The loss of each sample.  [peer, batch, ...], [peer, batch, ...] → [peer, batch]"""
    return task.losses(outputs.flatten(0, 1), y.flatten(0, 1)).view(y.shape[:2])


def rounded_up(count: int, everybody: int) -> int:
    """The number of peers that a recorded step for `count` peers computes: all of them, or at most an eighth more."""
    if count >= everybody:
        return count
    grain = 1 << max(0, count.bit_length() - 4)
    return min(-(-count // grain) * grain, max(everybody, 2))
