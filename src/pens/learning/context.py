# SPDX-License-Identifier: Apache-2.0
"""What scoring and updating share: the peers of a run, their models by name, and the jobs that are recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pens.learning.executor import Executor
from pens.learning.jobs import JobGraph
from pens.learning.learner import Learner
from pens.learning.named_models import NamedModels
from pens.learning.rules import LearningRules
from pens.protocol.messages import ModelRef, PeerId


@dataclass(frozen=True)
class Context:
    """The peers that learn together. Its parts change, and stay the same objects when a state is restored."""

    executor: Executor
    rules: LearningRules
    names: NamedModels
    by_peer: Mapping[PeerId, Learner]
    jobs: JobGraph
    origin: ModelRef | None = None
    """The model that all peers began with, where they all began with one."""

    def slots(self, peers: Iterable[PeerId]) -> list[int]:
        """Where the samples of peers are."""
        by_peer = self.by_peer
        return [by_peer[peer].slot for peer in peers]
