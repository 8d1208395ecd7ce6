# SPDX-License-Identifier: Apache-2.0
"""Made-up runs: whole run directories without any training, with numbers that a test can predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from pens.inference.peer_models import PeerModels
from pens.measuring.metrics import neighbour_agreement
from pens.measuring.results import Communication, Comparisons, DataSizes, History, Pairs, RunResult
from pens.protocol.messages import PeerId
from pens.protocol.policies import SelectionRule, Tally, choose_neighbours
from pens.report.study import Study, read_studies
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import ExperimentDir, ExperimentRecord

MODEL_BYTES = 1000


def made_run(
    settings: Settings, method: MethodName, seed: int, accuracy: float, *, rounds: int = 4, clusters: Sequence[int] = ()
) -> RunResult:
    """A run whose peers have accuracies around `accuracy`, one version more each round, 3 models received a round."""
    generator = np.random.default_rng([seed, len(method)])
    clusters = tuple(clusters) or tuple(p * 2 // settings.scenario.peers for p in range(settings.scenario.peers))
    learners = 1 if method == "central" else len(clusters)
    talks = method not in ("local", "central")
    searching = settings.pens.step1_rounds if method == "pens" else 0
    versions = np.tile(np.arange(1, rounds + searching + 2), learners)
    peers = np.repeat(np.arange(learners), rounds + searching + 1)
    order = np.lexsort((peers, versions))
    versions, peers = versions[order], peers[order]
    share = versions / versions.max()
    comparisons = _comparisons(settings, clusters, generator) if method == "pens" else None
    pairs = _pairs(clusters, generator) if talks else Pairs(*(np.zeros(0, np.int64) for _ in range(5)))
    selections = {}
    if comparisons:
        selections = {PeerId(p): _neighbours(settings, comparisons, p, len(clusters)) for p in range(len(clusters))}
    received = 3 * (versions - 1) * talks
    return RunResult(
        method=method,
        seed=seed,
        score=np.clip(accuracy + generator.normal(0, 0.02, len(clusters)), 0, 1),
        clusters=clusters,
        cluster_names=tuple(f"{angle}°" for angle in settings.scenario.rotations),
        agreement=neighbour_agreement(selections, clusters),
        neighbours={int(peer): chosen for peer, chosen in selections.items()},
        communication=Communication(
            sent=np.full(learners, 3 * (rounds + searching) * talks),
            received=np.full(learners, 3 * (rounds + searching) * talks),
            refused=np.zeros(learners, np.int64),
            merged=np.bincount(pairs.receiver, pairs.merged, learners).astype(np.int64),
            scored=np.bincount(comparisons.receiver, comparisons.sampled, learners).astype(np.int64)
            if comparisons
            else np.zeros(learners, np.int64),
            model_bytes=MODEL_BYTES,
        ),
        pairs=pairs,
        history=History(
            time=versions - 0.5,
            peer=peers,
            version=versions,
            searching=versions <= searching + 1,
            merged=3 * (versions > 1) * talks,
            train_loss=1 - share,
            val_loss=1 - share,
            val_accuracy=accuracy * share,
            received=received,
        ),
        models=PeerModels({"weight": torch.zeros(learners, 2)}),
        rounds=float(rounds + searching),
        mean_batch=1.0,
        seconds=2.0,
        warnings=("peer 0: something odd",) if method == "random" else (),
        peak_memory_bytes=0,
        device="cpu",
        comparisons=comparisons,
        data_sizes=DataSizes(
            np.full(learners, settings.scenario.train_per_peer), np.full(learners, settings.scenario.val_per_peer)
        ),
    )


def made_study(
    folder: Path,
    settings: Settings,
    accuracies: Mapping[MethodName, Sequence[float]],
    *,
    methods: Sequence[MethodName] = (),
    seeds: int = 0,
    clusters: Sequence[int] = (),
    own_parts: tuple[str, ...] = (),
) -> Study:
    """A run directory with these mean accuracies, one per seed; and what a report reads from it."""
    seeds = seeds or max(len(values) for values in accuracies.values())
    directory = ExperimentDir(folder)
    directory.create(ExperimentRecord(settings, tuple(methods or accuracies), tuple(range(seeds)), own_parts))
    for method, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            directory.run(method, seed).save(made_run(settings, method, seed, accuracy, clusters=clusters))
    return read_studies([folder])[0]


def _comparisons(settings: Settings, clusters: Sequence[int], generator: np.random.Generator) -> Comparisons:
    """Each round each peer compares n_sampled others once, and selects m: first those of its own cluster."""
    rows = []
    for peer, cluster in enumerate(clusters):
        for round_ in range(1, settings.pens.step1_rounds + 1):
            others = [p for p in range(len(clusters)) if p != peer] if len(clusters) < 50 else None
            sampled = (
                generator.choice(others, settings.pens.n_sampled, replace=False)
                if others
                else (peer + 1 + generator.choice(len(clusters) - 1, settings.pens.n_sampled, replace=False))
                % len(clusters)
            )
            liked = sorted(sampled, key=lambda p: clusters[p] != cluster)[: settings.pens.m]
            rows += [(peer, round_, int(p), 1, int(p in liked)) for p in sorted(sampled)]
    return Comparisons(*np.array(rows, np.int64).T)


def _neighbours(settings: Settings, counts: Comparisons, peer: int, num_peers: int) -> tuple[PeerId, ...]:
    tally = Tally()
    mine = counts.receiver == peer
    for sender, sampled, selected in zip(counts.sender[mine], counts.sampled[mine], counts.selected[mine], strict=True):
        tally.sampled[PeerId(int(sender))] += int(sampled)
        tally.selected[PeerId(int(sender))] += int(selected)
    tally.samplings = settings.pens.step1_rounds
    rule = SelectionRule(settings.pens.m, settings.pens.n_sampled, num_peers - 1, "uniform")
    return choose_neighbours(tally, rule).neighbours


def _pairs(clusters: Sequence[int], generator: np.random.Generator) -> Pairs:
    """Everybody merged the next three peers."""
    num = len(clusters)
    receiver = np.repeat(np.arange(num), min(3, num - 1))
    sender = (receiver + np.tile(np.arange(1, min(3, num - 1) + 1), num)) % num
    merged = generator.integers(1, 9, len(receiver))
    return Pairs(receiver, sender, merged, np.zeros_like(merged), np.zeros_like(merged))
