# SPDX-License-Identifier: Apache-2.0
"""Whole runs of networks with layers that need care: what is merged, and laws 1, 2 and 4."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from pens.learning.learners import Learners
from pens.merging.merger import RowMerge
from pens.settings.tree import MethodName, Settings
from tests.conftest import TINY
from tests.engine.networks import TINY_NETWORKS
from tests.simulations import decisions, final_models, run, simulation

NAMES = list(TINY_NETWORKS)


def tiny(**values: object) -> Settings:
    return Settings().replace({**TINY, "rounds": 3, "optimizer": "sgd", "lr": 0.05, **values})


def latest(learners: Learners) -> torch.Tensor:
    return learners.models.read([learners.names.rows[one.latest] for one in learners.by_peer.values()])


@pytest.mark.parametrize("method", ["pens", "random", "local", "fedavg"])
@pytest.mark.parametrize("name", NAMES)
def test_the_loop_decides_like_the_stack(name: str, method: MethodName) -> None:
    factory = TINY_NETWORKS[name]
    stack, loop = (run(simulation(tiny(), method, factory=factory, stacked=stacked)) for stacked in (True, False))
    assert decisions(stack) == decisions(loop)
    torch.testing.assert_close(final_models(stack), final_models(loop), rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("method", ["pens", "random"])
@pytest.mark.parametrize("name", NAMES)
def test_stopped_and_resumed_equals_never_stopped(name: str, method: MethodName) -> None:
    factory, settings = TINY_NETWORKS[name], tiny(schedule="async")
    unbroken = run(simulation(settings, method, factory=factory))
    for batches in (1, 4):
        broken = run(simulation(settings, method, factory=factory), batches)
        data, tensors = broken.state()
        heir = simulation(settings, method, factory=factory)
        heir.restore(json.loads(json.dumps(data)), {n: t.clone() for n, t in tensors.items()})
        run(heir)
        assert decisions(heir) == decisions(unbroken)
        assert torch.equal(final_models(heir), final_models(unbroken))


@pytest.mark.parametrize("name", NAMES)
def test_no_bit_depends_on_the_memory_of_a_chunk(name: str) -> None:
    whole, cut = (run(simulation(tiny(), "pens", factory=TINY_NETWORKS[name], memory_bytes=m)) for m in (1 << 28, 1))
    assert torch.equal(final_models(whole), final_models(cut))


@pytest.mark.parametrize("batch_norm", ["local", "merged"])
@pytest.mark.parametrize("rule", ["mean", "median"])
def test_what_gossip_merges_of_batch_norm_by_hand(batch_norm: str, rule: str) -> None:
    """All of six peers merge all models, and do not train after it: convolutions are the same everywhere, and each
    peer's batch normalisation is its own, or the same everywhere, too."""
    values = {"rounds": 1, "n_peers": 5, "batch_norm": batch_norm, "merge": rule, "init": "independent"}
    simulator = simulation(tiny(**values), "random", factory=TINY_NETWORKS["batch norm"])
    network, learners = simulator.learners.executor.engine.network, simulator.learners
    merges: list[torch.Tensor] = []
    merged = learners.executor._merged

    def watched(groups: object, merging: object) -> torch.Tensor:
        merges.append(merged(groups, merging))  # type: ignore[arg-type]
        befores.append(learners.models.read([_own(group) for group in groups]))  # type: ignore[attr-defined]
        return merges[-1]

    befores: list[torch.Tensor] = []
    learners.executor._merged = watched  # type: ignore[method-assign]
    run(simulator)
    after, before = network.tensors(merges[-1]), network.tensors(befores[-1])
    for name in after:
        same = all(torch.allclose(one, after[name][0], atol=1e-6) for one in after[name])
        assert same == (batch_norm == "merged" or name not in network.stored.batch_norm or name.endswith("tracked"))
        if batch_norm == "local" and name in network.stored.batch_norm:
            assert torch.equal(after[name], before[name])
        elif rule == "mean":
            torch.testing.assert_close(after[name][0], before[name].mean(0))
    assert np.ptp(before["1.running_mean"].numpy(), axis=0).min() > 0


def _own(group: object) -> int:
    return group.own if isinstance(group, RowMerge) else group[0]  # type: ignore[index]
