# SPDX-License-Identifier: Apache-2.0
"""Where runs are computed: the engine, the data and the first models, which all runs of one setting share.

Runs are given what peers hold, and never the test data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from pens.attacks.attack import attackers_of
from pens.data.scenarios import Federation, PeerData
from pens.engine.training import Engine
from pens.experiment.holdings import Holdings
from pens.experiment.running import Running
from pens.experiment.wiring import build_engine, build_simulator, first_models, new_executor, num_models
from pens.inference.network_form import NetworkForm
from pens.learning.executor import Executor
from pens.methods.spec import RunSpec
from pens.settings.tree import Settings
from pens.storage.runlog import RunDir
from pens.tasks.task import num_outputs, task_of

_PEERS_AT_ONCE = 2048  # peers that fill a GPU: more runs at once would cost memory and save no time


@dataclass
class Workplace:
    """The engine for one setting, and what runs share."""

    settings: Settings
    """Those of the data and the network hold for all runs here."""
    holdings: Holdings
    device: torch.device
    model: Callable[[], nn.Module] | None = None
    keeps_first_models: bool = True
    """Whether several methods will begin with the same models."""
    engine: Engine = field(init=False)
    network: NetworkForm = field(init=False)
    _executor: Executor | None = field(init=False, default=None)
    """The executor for the peers of some seeds, shared by all runs that do not pool data."""
    _outputs: int = field(init=False, default=0)
    """How many numbers the network gives: classes, in classification."""
    untrained: dict[tuple[int, str], Tensor] = field(init=False, default_factory=dict)
    """The untrained models by seed and `init`: a method may set that one for itself."""

    def prepare(self, seed: int) -> None:
        """Make the engine, by the data of one of the seeds."""
        federation = self.federation(seed)
        known = federation if self.holdings.peers else self.holdings.dataset(self.settings)
        some = federation.peers[0].train
        shown = some if len(some) > 2 else federation.tests[0]
        samples = sum(len(peer.train) for peer in federation.peers)
        outputs = num_outputs(task_of(self.settings), known)
        self._outputs = outputs
        self.network = NetworkForm.of(self.settings, outputs, shown, self.model, federation.class_names)
        self.engine = build_engine(self.settings, outputs, shown, samples, self.device, self.model)

    def federation(self, seed: int) -> Federation:
        """The federation of one seed."""
        return self.holdings.federation(self.settings, seed)

    def runs_at_once(self, seed: int) -> int:
        """How many runs are computed as one stack."""
        if count := self.settings.engine.seeds_at_once:
            return count
        peers = len(self.federation(seed).peers)
        return max(1, _PEERS_AT_ONCE // peers) if self.device.type == "cuda" else 1

    def forget_others(self, seeds: Sequence[int]) -> None:
        """Let go of what belongs to other seeds."""
        self.holdings.forget_others(seeds)
        self._executor, self.untrained = None, {}

    def begin(
        self, runs: Iterable[tuple[RunSpec, RunDir | None]], seeds: Sequence[int], sharing: int = 1
    ) -> list[Running]:
        """Begin or continue runs of one method, which are computed together.

        seeds: those whose data are brought to the device together.  sharing: how many runs have the same data."""
        executor: Executor | None = None
        first_slots: dict[int, int] = {}
        begun = []
        for spec, run_dir in runs:
            if executor is None:
                executor, first_slots = self._place(spec, seeds, sharing)
            federation = self.federation(spec.seed)
            models = self._first_models(spec, len(federation.peers))
            simulator = build_simulator(spec, federation.untested, executor, models, first_slots[spec.seed])
            begun.append(Running(spec.method.name, spec.seed, simulator, run_dir, federation))
            begun[-1].resume()
        return begun

    def _place(self, spec: RunSpec, seeds: Sequence[int], sharing: int) -> tuple[Executor, dict[int, int]]:
        """The executor that computes several seeds, and the slot of each seed's first peer. Samples are copied to the
        device once for all methods, and those of a user's own federation once for all seeds, too."""
        held = {id(f): self._trained_on(spec, f) for f in map(self.federation, seeds)}
        starts = dict(zip(held, np.cumsum([0, *map(len, held.values())]).tolist(), strict=False))
        executor = self._executor if not spec.method.pools_data else None
        if executor is None:
            data = [peer for peers in held.values() for peer in peers]
            task = task_of(self.settings)
            executor = new_executor(self.engine, data, self.device, sharing * len(seeds) // len(held), task)
        if not spec.method.pools_data:
            self._executor = executor
        return executor, {seed: starts[id(self.federation(seed))] for seed in seeds}

    def _trained_on(self, spec: RunSpec, federation: Federation) -> Sequence[PeerData]:
        """What each learner trains on: its data, or what an attacker takes in their place."""
        data = spec.method.holders(federation.untested, spec.settings)
        attackers = None if spec.method.pools_data else attackers_of(self.settings, len(federation.peers))
        if not attackers:
            return data
        return [attackers.trains_on(d, self._outputs) if p in attackers.peers else d for p, d in enumerate(data)]

    def _first_models(self, spec: RunSpec, peers: int) -> Tensor:
        """The untrained models of a run's peers; made once for all methods that begin alike."""
        key, count = (spec.seed, spec.settings.model.init), num_models(spec, peers)
        if not self.keeps_first_models:
            return first_models(self.engine, spec.settings, spec.seed, count)
        if len(self.untrained.get(key, ())) < count:
            self.untrained[key] = first_models(self.engine, spec.settings, spec.seed, count)
        return self.untrained[key][:count]
