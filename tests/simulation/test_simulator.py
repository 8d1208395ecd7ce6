# SPDX-License-Identifier: Apache-2.0
"""Laws 2, 3, 4 and 8: what a simulation must not depend on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pens import rng
from pens.data.scenarios import Federation, PeerData
from pens.engine.batches import SampleStack
from pens.engine.optimizers import Moments
from pens.engine.rounding import round_rows
from pens.engine.stack import ModelStack
from pens.engine.training import Evaluation, Trained
from pens.experiment.wiring import first_models
from pens.learning.executor import Answer, Call, MomentRows, NewModels, Train, train
from pens.learning.jobs import Updating
from pens.learning.learner import Learner
from pens.learning.learners import Learners
from pens.learning.updating import Updater, Validated
from pens.partitions.rotation import rotated_federation
from pens.protocol.behaviour import waits_for
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import (
    Action,
    Ask,
    Chose,
    Compare,
    Drop,
    Event,
    Losses,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Request,
    Send,
    Update,
    Updated,
)
from pens.settings.schema import Distance
from pens.settings.tree import MethodName, RunSettings, Settings
from pens.simulation.simulator import Simulator, advance_together
from tests.conftest import TINY, tiny_dataset
from tests.fakes import FakeEngine, fake_simulation, fake_simulations
from tests.methods.specs import ALL, IN_STEP, SELECTING, TOLD_CLUSTERS, made_of, spec_of
from tests.simulations import Log, decisions, final_models, run, simulation, simulations

GOSSIP: tuple[MethodName, ...] = (
    "pens",
    "pens+",
    "random",
    "random+",
    "oracle",
    "oracle+",
    "dac",
    "dpsgd",
    "el",
    "fedavg",
    "dac-var",
    "fedfomo",
    "ifca",
    "fedbn",
)
PUSHED = tuple(method for method in GOSSIP if method not in IN_STEP)

scenarios = st.fixed_dictionaries(
    {
        "schedule": st.sampled_from(["rounds", "async"]),
        "rotations": st.sampled_from([(0, 180), (0, 90, 180)]),
        "n_peers": st.integers(1, 4),
        "n_sampled": st.integers(2, 4),
        "step1_rounds": st.integers(1, 3),
        "step1_samplings": st.integers(1, 3),
        "score_samples": st.sampled_from([None, 1, 4]),
        "rounds": st.integers(1, 5),
        "patience": st.integers(1, 4),
        "jitter": st.sampled_from([0.0, 0.3]),
        "latency": st.sampled_from([0.0, 0.2, 3.0]),
        "training_time": st.sampled_from([0.3, 1.0, 7.0]),
        "give_up": st.sampled_from([0.05, 0.5, 3.0]),
        "init": st.sampled_from(["independent", "common"]),
        "own_in_merge": st.booleans(),
        "accept": st.sampled_from(["neighbours", "anyone"]),
        "validated": st.sampled_from(["trained", "merged", "either"]),
        "neighbours_by": st.sampled_from(["expected", "groups", "levels"]),
        "alone_rounds": st.integers(0, 2),
        "tested": st.sampled_from(["best", "last"]),
        "admit": st.booleans(),
        "pull_from": st.sampled_from(["snapshot", "latest"]),
        "train_first": st.booleans(),
        "score": st.sampled_from(["loss", "accuracy", *get_args(Distance)]),
        "expected_offset": st.sampled_from([0.0, -1.0, 2.0]),
        "nobody_found": st.sampled_from(["most-selected", "alone"]),
        "step2_model": st.sampled_from(["last", "first", "best"]),
        "admission_trials": st.integers(1, 2),
        "wire": st.sampled_from(["fp32", "fp32", "fp16", "int8"]),
    }
)
methods = st.sampled_from(GOSSIP)


def tiny(**values: object) -> Settings:
    return Settings().replace({**TINY, **values})


def suited(values: dict[str, object], method: MethodName) -> dict[str, object]:
    """Methods whose peers go in step have the schedule `rounds`, one snapshot, and messages that come in time. Where
    updates are compared, all begin alike."""
    in_step = {"schedule": "rounds", "pull_from": "snapshot", "latency": 0.2} if method in IN_STEP else {}
    alike = {"init": "common"} if values.get("score") == "cosine-update" else {}
    return {**values, **in_step, **alike}


# --- rounds: from a snapshot, or in turn ------------------------------------------------------------------------------


@pytest.mark.parametrize("pull_from", ["snapshot", "latest"])
def test_a_round_pulls_the_models_of_its_beginning_or_those_of_peers_whose_turn_was_before(pull_from: str) -> None:
    """Four peers that pull from all others. After the first training all models have version 1. In the first round peer
    p pulls version 1 of all; or, in turn, version 2 of the p peers before it."""
    log = Log()
    settings_ = tiny(peers=4, n_peers=3, rounds=2, patience=50, pull_from=pull_from)
    simulator, _ = fake_simulation(settings_, "random")
    simulator._trace = log
    run(simulator)
    pulls = {peer: event for time, peer, event, _ in log.entries if isinstance(event, Pulled) and 1 <= time < 2}
    for me in range(4):
        newer = sorted(ref.owner for ref in pulls[PeerId(me)].models if ref.version == 2)
        assert newer == (list(range(me)) if pull_from == "latest" else [])


@pytest.mark.parametrize(("score", "best"), [("loss", 0), ("accuracy", 1)])
def test_step_one_takes_the_lowest_losses_or_the_highest_accuracies(score: str, best: int) -> None:
    """Models of cluster 0 have loss 0 and accuracy 0 for everybody, those of cluster 1 have loss 1 and accuracy 1. Four
    others are compared at a time, of eight peers, so that each cluster has at least the one that is wanted."""

    class Told(FakeEngine):
        def evaluate(self, models: ModelStack, rows: Sequence[int], *rest: Any) -> Evaluation:
            cluster = models.read(rows)[:, 0].double().numpy()
            return Evaluation(cluster.copy(), cluster.copy())

    settings_ = tiny(peers=8, n_sampled=4, m=1, step1_rounds=3, step1_samplings=2, rounds=1, score=score)
    (simulator,), _ = fake_simulations(settings_, "pens", [0], Told)
    run(simulator)
    chosen = {sender for learner in simulator.learners.by_peer.values() for sender in learner.tally.selected}
    assert {int(sender) // 4 for sender in chosen} == {best}


# --- every run ends ---------------------------------------------------------------------------------------------------

impatient = st.fixed_dictionaries(
    {
        "latency": st.floats(0, 30),
        "give_up": st.floats(0.01, 3),
        "n_sampled": st.integers(2, 9),
        "m": st.just(1),
        "n_peers": st.integers(1, 9),
        "step1_rounds": st.integers(1, 3),
        "step1_samplings": st.integers(1, 3),
        "training_time": st.floats(0.1, 9),
        "jitter": st.sampled_from([0.0, 0.9]),
        "rounds": st.integers(1, 12),
        "admit": st.booleans(),
        "step2_model": st.sampled_from(["last", "best"]),
    }
)


def longest(settings_: RunSettings, peers: int) -> float:
    """Virtual time by which each peer has finished, whatever does or does not arrive: a phase ends after so many waits
    and updates. `settings_`: what the method made of them."""
    timing, pens = settings_.timing, settings_.pens
    wait = timing.interval * (1 + timing.jitter)
    step1 = pens.step1_rounds * pens.step1_samplings * waits_for(pens.n_sampled, peers - 1)
    step2 = max(waits_for(min(settings_.gossip.n_peers, others), others) for others in range(1, peers))
    waits = timing.give_up * (step1 + settings_.gossip.rounds * step2)
    updates = (
        (1 + pens.step1_rounds) * max(settings_.step1_epochs, settings_.training.epochs) / settings_.training.epochs
    )
    trained = (updates + pens.alone_rounds + settings_.gossip.rounds + 1) * timing.training_time
    return wait * (waits + settings_.gossip.rounds + 3) + trained


@settings(max_examples=60)
@given(impatient, st.sampled_from(["pens", "pens+"]), st.integers(0, 3))
def test_every_peer_ends_its_run_whatever_arrives_late_or_never(
    values: dict[str, object], method: MethodName, seed: int
) -> None:
    peers = 10
    settings_ = tiny(**values, schedule="async", peers=peers, patience=999)
    simulator, _ = fake_simulation(settings_, method, seed)
    end, handled = longest(spec_of(method, settings_).settings, peers), Counter[int]()

    def count(time: float, peer: PeerId, event: Event, actions: list[Action]) -> None:
        handled[peer] += 1
        assert simulator.peers[peer].phase == "finished" or time <= end
        assert handled[peer] < 20 * (end + 99), "too many events"

    simulator._trace = count
    run(simulator)
    assert simulator.now <= end
    assert simulator.fallbacks <= set(range(peers))


# --- law 2 ------------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(scenarios, methods, st.integers(2, 5))
def test_batched_simulation_equals_one_update_at_a_time(
    values: dict[str, object], method: MethodName, max_batch: int
) -> None:
    logs, simulators = [], []
    for batch in (0, 1, max_batch):
        log = Log()
        simulators.append(run(simulation(tiny(**suited(values, method), max_batch=batch), method, log=log)))
        logs.append(log.until(simulators[-1].now))
    assert logs[0] == logs[1] == logs[2]
    assert decisions(simulators[0]) == decisions(simulators[1]) == decisions(simulators[2])
    assert torch.equal(final_models(simulators[0]), final_models(simulators[1]))
    one_by_one = simulators[1].learners
    assert one_by_one.num_batches == one_by_one.num_updates


def test_batching_does_batch() -> None:
    for schedule, least in (("rounds", 5.0), ("async", 3.0)):
        learners = run(simulation(tiny(schedule=schedule, patience=50), "random")).learners
        assert learners.num_updates / learners.num_batches >= least


@given(scenarios, st.sampled_from(PUSHED), st.integers(1, 9))
def test_nothing_depends_on_how_far_events_run_ahead(
    values: dict[str, object], method: MethodName, updates_ahead: int
) -> None:
    """Not even what is counted at the end: messages, and virtual time."""
    settings_ = tiny(**{**suited(values, method), "schedule": "async"}).replace({"rounds": 12, "peers": 12})
    reference, engine = fake_simulation(settings_, method)
    other, other_engine = fake_simulation(settings_, method)
    other._schedule = replace(other._schedule, updates_ahead=updates_ahead)
    assert decisions(run(other)) == decisions(run(reference))
    assert torch.equal(final_models(other), final_models(reference))
    assert sum(n for n, _ in engine.batches) == sum(n for n, _ in other_engine.batches)


def test_async_needs_no_more_batches_than_the_longest_chain_of_updates() -> None:
    """Nothing but a model's own ancestors holds it back: no cut of time, and no peer that selects its neighbours."""
    log = Log()
    settings_ = tiny(schedule="async", rounds=20, patience=100, peers=20, n_peers=4)
    for method in ("random", "oracle", "local"):
        simulator, engine = fake_simulation(settings_, method)
        simulator._trace, log.entries = log, []
        run(simulator)
        depth = longest_chain(log)
        assert depth <= len(engine.batches) <= 1.05 * depth


def longest_chain(log: Log) -> int:
    """Updates that had to be computed one after the other."""
    depth: dict[ModelRef, int] = {}
    latest: dict[PeerId, ModelRef] = {}
    for _, peer, _, actions in log.entries:
        for action in actions:
            if isinstance(action, Update):
                own = latest.get(peer, ModelRef(peer, 0))
                latest[peer] = ModelRef(peer, own.version + 1)
                depth[latest[peer]] = 1 + max(depth.get(ref, 0) for ref in (own, *action.models))
    return max(depth.values())


def test_to_select_neighbours_a_peer_waits_for_comparisons_alone() -> None:
    simulator, engine = fake_simulation(tiny(patience=50), "pens")
    while not simulator.selections:
        trained = len(engine.batches)
        advance_together([simulator])
    assert len(simulator.selections) == 6
    assert len(engine.batches) == trained + 1  # of the round in which all of them selected


# --- law 3 ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["rounds", "async"])
@pytest.mark.parametrize("method", ALL)
def test_the_same_settings_and_seed_give_the_same_run_whatever_the_chunks(method: MethodName, schedule: str) -> None:
    settings_ = tiny(**suited({"schedule": schedule}, method))
    reference = run(simulation(settings_, method))
    for memory_bytes in (1, 1 << 14, 1 << 30):
        again = run(simulation(settings_, method, memory_bytes=memory_bytes))
        assert decisions(again) == decisions(reference)
        assert torch.equal(final_models(again), final_models(reference))
    other = run(simulation(settings_, method, seed=1))
    assert not torch.equal(final_models(other), final_models(reference))


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_the_loop_back_end_simulates_the_same_run(schedule: str) -> None:
    settings_ = tiny(schedule=schedule, patience=50)
    stack, loop = (run(simulation(settings_, "pens", stacked=stacked)) for stacked in (True, False))
    assert decisions(stack) == decisions(loop)
    torch.testing.assert_close(final_models(stack), final_models(loop), rtol=1e-3, atol=1e-3)


@settings(max_examples=15)
@given(scenarios, st.sampled_from(ALL), st.integers(2, 3))
def test_runs_that_are_computed_together_find_what_each_finds_alone(
    values: dict[str, object], method: MethodName, count: int
) -> None:
    settings_ = tiny(**suited(values, method))
    federations = [rotated_federation(tiny_dataset(), settings_.scenario, seed) for seed in range(count)]
    alone = [run(simulation(settings_, method, seed=s, federation=f)) for s, f in enumerate(federations)]
    together = simulations(settings_, method, federations)
    while going := [simulator for simulator in together if not simulator.is_over()]:
        advance_together(going)
    for one, other in zip(alone, together, strict=True):
        assert decisions(one) == decisions(other)
        assert torch.equal(final_models(one), final_models(other))
        assert one.state()[0] == other.state()[0]
    stack = together[0].learners.models
    for simulator in together:
        simulator.learners.let_go()
    assert stack.num_alive == 0


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_several_runs_are_one_call_of_the_engine(schedule: str) -> None:
    settings_ = tiny(schedule=schedule, patience=100, rounds=10)
    (first, second, third), engine = fake_simulations(settings_, "pens", [0, 1, 2])
    while going := [simulator for simulator in (first, second, third) if not simulator.is_over()]:
        advance_together(going)
    runs = [s.learners for s in (first, second, third)]
    assert sum(n for n, _ in engine.batches) == sum(learners.num_updates for learners in runs)
    assert len(engine.batches) <= 1.4 * max(learners.num_batches for learners in runs)
    if schedule == "rounds":
        assert {n for n, _ in engine.batches} == {18}


def test_events_run_ahead_while_a_device_trains() -> None:
    simulator, engine = fake_simulation(tiny(schedule="async", patience=100, rounds=20, peers=12), "random")
    recorded = []
    train = engine.train

    def watched(*arguments: object) -> object:
        recorded.append(simulator.learners.jobs.num_updates)
        return train(*arguments)

    engine.train = watched  # type: ignore[assignment, method-assign]
    for _ in range(5):
        advance_together([simulator])
        assert simulator.learners.jobs.num_updates >= 24  # all that is wanted, before it is asked for
    assert min(recorded) < 24


# --- law 4 ------------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(scenarios, st.sampled_from(ALL), st.lists(st.integers(0, 6), min_size=1, max_size=3))
def test_stopped_anywhere_and_resumed_equals_never_stopped(
    values: dict[str, object], method: MethodName, stops: list[int]
) -> None:
    settings_ = tiny(**suited(values, method))
    unbroken_log, broken_log = Log(), Log()
    unbroken = run(simulation(settings_, method, log=unbroken_log))
    broken = simulation(settings_, method, log=broken_log)
    for batches in stops:
        run(broken, batches)
        data, tensors = broken.state()
        data, tensors = json.loads(json.dumps(data)), {name: t.clone() for name, t in tensors.items()}
        broken = simulation(settings_, method, log=broken_log)
        broken.restore(data, tensors)
    run(broken)
    assert broken_log.entries == unbroken_log.entries
    assert decisions(broken) == decisions(unbroken)
    assert torch.equal(final_models(broken), final_models(unbroken))
    assert list(broken.learners.history) == list(unbroken.learners.history)
    assert sorted(broken.learners.names.rows) == sorted(unbroken.learners.names.rows)
    if settings_.gossip.wire == "fp32":  # else twins that nobody will read again are not made again
        assert broken.learners.models.num_alive == unbroken.learners.models.num_alive


# --- laws 2 and 4, quickly --------------------------------------------------------------------------------------------


class Rough(FakeEngine):
    """One training in seven fails, and optimizers count their steps."""

    def train(self, *arguments: Any) -> Trained:
        _, _, _, keys, epochs, _, moments = arguments
        trained = super().train(*arguments)
        trained.loss[[key % 7 == 0 for key in keys]] = np.nan
        later = moments and Moments(moments.values + 1, [steps + epochs for steps in moments.steps])
        return Trained(trained.rows, trained.loss, later)


ROUGH: dict[str, tuple[MethodName, dict[str, object]]] = {
    "begin step 2 with the best": ("pens", {"score_samples": 1, "step2_model": "best"}),
    "admit strangers": ("pens", {"schedule": "async", "admit": True, "admission_trials": 1, "score_samples": 1}),
    "find nobody": (
        "pens",
        {"schedule": "async", "step2_model": "first", "validated": "merged", "expected_offset": 9.0},
    ),
    "try alone, and test either form": (
        "pens",
        {"neighbours_by": "levels", "validated": "either", "alone_rounds": 2, "step2_model": "best"},
    ),
    "compare what training changed": (
        "pens",
        {"score": "cosine-update", "init": "common", "neighbours_by": "levels", "schedule": "async"},
    ),
    "trust nobody": ("pens", {"schedule": "async", "gate": "on", "strikes": 1, "dropped_for": 2, "attack": "noise"}),
    "drop everybody": ("random", {"gate": "on", "strikes": 1, "attack": "echo-then-negate", "attackers": 3}),
    "take turns": ("random", {"pull_from": "latest", "tested": "last"}),
    "optimizers remember": ("local", {"schedule": "async", "momentum": 0.9, "optimizer": "sgd"}),
}


def rough(name: str, **values: object) -> Simulator:
    method, settings_ = ROUGH[name]
    fast = {"peers": 10, "rounds": 8, "patience": 3, "window": 2, "latency": 0.3, "step1_rounds": 2}
    (simulator,), _ = fake_simulations(tiny(**{**fast, **settings_, **values}), method, [3], Rough)
    return simulator


@pytest.mark.parametrize("name", ROUGH)
def test_interrupted_after_every_batch_equals_never_interrupted(name: str) -> None:
    """Whoever takes over has begun a run of its own, of which nothing is left: no numbers, and no places of models."""
    unbroken, broken = run(rough(name)), rough(name)
    while True:
        heir = run(rough(name), batches=1)
        heir.restore(*written(broken))
        assert_same(heir, broken)
        broken = heir
        if broken.is_over():
            break
        advance_together([broken])
    assert_same(broken, unbroken)
    assert decisions(broken) == decisions(unbroken)
    assert torch.equal(final_models(broken), final_models(unbroken))
    assert unbroken.learners.setbacks
    assert bool(unbroken.fallbacks) == (name in ("find nobody", "trust nobody"))
    stops = stop_times(unbroken.learners)
    assert min(stops) < max(stops)
    broken.learners.let_go()
    assert broken.learners.models.num_alive == 0


def stop_times(learners: Learners) -> list[float]:
    return [learner.stop_time for learner in learners.by_peer.values()]


def moments_of(learners: Learners) -> list[MomentRows]:
    """What the optimizers remember that go on."""
    return [learner.moments for learner in learners.by_peer.values() if learner.moments]


def written(simulator: Simulator) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """What a checkpoint keeps."""
    data, tensors = simulator.state()
    return json.loads(json.dumps(data)), {name: tensor.clone() for name, tensor in tensors.items()}


def assert_same(one: Simulator, other: Simulator) -> None:
    """All that they keep, losses that are no numbers included."""
    (data, tensors), (other_data, other_tensors) = written(one), written(other)
    assert data == other_data
    assert tensors.keys() == other_tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, other_tensors[name])
    assert one.learners.models.num_alive == other.learners.models.num_alive


@pytest.mark.parametrize("name", ROUGH)
def test_small_batches_change_nothing(name: str) -> None:
    reference = run(rough(name))
    for max_batch in (1, 3):
        other = run(rough(name, max_batch=max_batch))
        assert decisions(other) == decisions(reference)
        assert torch.equal(final_models(other), final_models(reference))
    assert reference.learners.num_batches < reference.learners.num_updates / 2


# --- law 8 ------------------------------------------------------------------------------------------------------------


def with_other_data(federation: Federation, peer: int) -> Federation:
    """The same federation, but one peer holds noise."""
    noise = tiny_dataset(seed=99).train
    mine = federation.peers[peer]
    other = PeerData(noise.take(slice(len(mine.train))), noise.take(slice(len(mine.val))))
    return replace(federation, peers=(*federation.peers[:peer], other, *federation.peers[peer + 1 :]))


@pytest.mark.parametrize("method", ["random", "pens"])
@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_what_a_peer_holds_reaches_others_only_through_its_models(schedule: str, method: MethodName) -> None:
    """Exchange one peer's data. Whoever never merged or scored a model that descends from it must not notice."""
    settings_ = tiny(schedule=schedule, rounds=1, n_peers=1, n_sampled=2, m=1, patience=50, tested="last")
    settings_ = settings_.replace({"step1_rounds": 1, "step1_samplings": 1, "peers": 16, "train_per_peer": 4})
    federation = rotated_federation(tiny_dataset(), settings_.scenario, 0)
    log = Log()
    before = run(simulation(settings_, method, federation=federation, log=log))
    after = run(simulation(settings_, method, federation=with_other_data(federation, 2)))
    tainted = {2}
    for _, receiver, _, actions in log.entries:
        for action in actions:
            if isinstance(action, Update | Compare) and any(ref.owner in tainted for ref in action.models):
                tainted.add(receiver)
    clean = [p for p in range(16) if p not in tainted]
    assert clean
    assert torch.equal(final_models(before)[clean], final_models(after)[clean])
    assert not torch.equal(final_models(before)[2], final_models(after)[2])


def test_local_training_depends_on_own_data_alone() -> None:
    settings_ = tiny()
    federation = rotated_federation(tiny_dataset(), settings_.scenario, 0)
    before = final_models(run(simulation(settings_, "local", federation=federation)))
    after = final_models(run(simulation(settings_, "local", federation=with_other_data(federation, 2))))
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [p != 2 for p in range(6)]


def test_no_one_but_the_oracle_is_told_the_kinds() -> None:
    """Relabel the clusters: nothing may change for methods that are not told them."""
    settings_ = tiny()
    federation = rotated_federation(tiny_dataset(), settings_.scenario, 0)
    relabelled = replace(federation, clusters=(0, 1, 0, 1, 0, 1))
    for method in ALL:
        one, two = (final_models(run(simulation(settings_, method, federation=f))) for f in (federation, relabelled))
        assert torch.equal(one, two) == (method not in TOLD_CLUSTERS)


# --- schedules and bookkeeping ---------------------------------------------------------------------------------------


def test_in_rounds_all_peers_pull_from_one_snapshot() -> None:
    log = Log()
    run(simulation(tiny(patience=50), "random", log=log))
    versions: dict[float, set[int]] = {}
    for time, _, event, _ in log.entries:
        if isinstance(event, Pulled):
            versions.setdefault(time, set()).update(model.version for model in event.models)
    assert versions == {float(r): {r} for r in range(1, 6)}


def test_in_rounds_every_peer_asks_for_n_peers_models_each_round() -> None:
    log = Log()
    simulator = run(simulation(tiny(patience=50, n_peers=3), "random", log=log))
    asked = Counter(peer for _, peer, _, actions in log.entries for a in actions if isinstance(a, Request))
    assert asked == Counter(dict.fromkeys(range(6), 5))
    assert simulator.traffic.received == [15] * 6
    assert sum(simulator.traffic.sent) == 90
    assert [learner.merges.total() for learner in simulator.learners.by_peer.values()] == [15] * 6


def test_step_one_counts_every_sampling_and_merges_the_last() -> None:
    simulator = run(simulation(tiny(patience=50, step1_rounds=3, step1_samplings=4, n_sampled=3, m=2), "pens"))
    for learner in simulator.learners.by_peer.values():
        tally = learner.tally
        assert tally.samplings == 12
        assert tally.sampled.total() == 36
        assert tally.selected.total() == 24
        assert learner.scored == 36
    searching = [r for r in simulator.learners.history if r.searching and r.version > 1]
    assert {r.merged for r in searching} == {2}
    assert len(searching) == 18
    assert set(simulator.selections) == set(range(6))


@pytest.mark.parametrize("accept", ["neighbours", "anyone"])
@pytest.mark.parametrize("schedule", ["rounds", "async"])
@pytest.mark.parametrize("method", GOSSIP)
def test_traffic_is_what_peers_did_until_the_end(method: MethodName, schedule: str, accept: str) -> None:
    """Each model that was sent, received or refused, counted once more from the log, peer by peer."""
    log = Log()
    timing = {"interval": 0.01, "training_time": 0.01, "latency": 0.003, "give_up": 3.0, "jitter": 0.3}
    stopping = {"rounds": 12, "patience": 2, "window": 1}  # so that events run ahead of the end
    values = {"schedule": schedule, "accept": accept, **stopping, **timing}
    settings_ = tiny(**suited(values, method), peers=10, n_peers=3)
    simulator, _ = fake_simulation(settings_, method)
    simulator._trace = log
    run(simulator)
    sent, received, refused = ([0] * len(simulator.peers) for _ in range(3))
    for _, peer, event, actions in log.until(simulator.now):
        received[peer] += isinstance(event, Received)
        received[peer] += len(event.models) if isinstance(event, Pulled) else 0
        sent[peer] += sum(isinstance(action, Send) for action in actions)
        for action in actions:
            for source in action.sources if isinstance(action, Request) else ():
                sent[source] += 1
            refused[peer] += isinstance(action, Drop) and action.why == "refused"
    assert simulator.traffic.sent == sent
    assert simulator.traffic.received == received
    assert simulator.traffic.refused == refused
    assert any(refused) == (method in SELECTING and schedule == "async" and accept == "neighbours")
    assert len({*sent}) > 1


@pytest.mark.parametrize("method", PUSHED)
def test_messages_take_the_latency_and_updates_the_training_time(method: MethodName) -> None:
    """A model arrives `latency` after it was sent, as it was then; an update of E epochs takes `training_time`, one of
    twice as many epochs twice as long, and all that a peer sends from then on is its new model."""
    log = Log()
    timing = {"latency": 0.375, "training_time": 1.5, "interval": 0.75, "epochs": 2, "step1_epochs": 4}
    simulator, _ = fake_simulation(tiny(schedule="async", peers=8, patience=50, n_peers=3, **timing), method)
    simulator._trace = log
    run(simulator)
    version = [0] * 8
    in_flight: list[tuple[float, int, ModelRef]] = []
    complete: dict[int, float] = {}
    for time, peer, event, actions in log.entries:
        if isinstance(event, Updated):
            assert time == complete.pop(peer)
            version[peer] += 1
        if isinstance(event, Received):
            in_flight.remove((time, peer, event.model))
        for action in actions:
            if isinstance(action, Update):
                complete[peer] = time + 0.75 * action.epochs
            if isinstance(action, Send):
                in_flight.append((time + 0.375, action.to, ModelRef(peer, version[peer])))
    assert all(arrival >= log.entries[-1][0] for arrival, _, _ in in_flight)


# --- strangers --------------------------------------------------------------------------------------------------------


def admitting(seed: int, nobody_is_found: bool) -> tuple[Simulator, Log]:
    """Twelve peers that judge strangers, train for one, two or three epochs at a time, and stop early."""
    log = Log()
    values = {"admission_trials": 1, "step1_rounds": 1, "rounds": 40, "latency": 0.3, "patience": 2, "window": 1}
    found = {"expected_offset": 2.0 * nobody_is_found, "nobody_found": "alone"}
    simulator, _ = fake_simulation(tiny(schedule="async", admit=True, peers=12, **values, **found), "pens", seed)
    for place, peer in enumerate(simulator.peers):
        peer.plan = replace(peer.plan, epochs=1 + place % 3)
    simulator._trace = log
    return simulator, log


@pytest.mark.parametrize(("seed", "nobody_is_found"), [(20, False), (0, True)])
def test_strangers_are_judged_beside_the_own_model_of_then_until_the_update_is_complete(
    seed: int, nobody_is_found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question is answered when the update that came with it is complete. `asked` counts those that were answered
    until the end, peer by peer; events ran ahead of that. Where nobody is found, peers judge without neighbours, too.
    """
    asked: list[tuple[PeerId, ModelRef, Ask, float]] = []
    record = Learners.record_question

    def note(self: Learners, peer: PeerId, own: ModelRef, ask: Ask, time: float) -> None:
        if ask.when == "updated":
            asked.append((peer, own, ask, time))
        record(self, peer, own, ask, time)

    monkeypatch.setattr(Learners, "record_question", note)
    simulator, log = admitting(seed, nobody_is_found)
    run(simulator)
    version, begun = Counter[PeerId](), dict[PeerId, tuple[ModelRef, Ask]]()
    complete: list[tuple[PeerId, ModelRef, Ask, float]] = []
    for time, peer, event, actions in log.entries:
        if isinstance(event, Updated):
            version[peer] += 1
            complete += [(peer, *begun.pop(peer), time)] if peer in begun else []
        for action in actions:
            if isinstance(action, Ask) and action.when == "updated":
                begun[peer] = ModelRef(peer, version[peer]), action
    assert all(question in asked for question in complete)
    assert len(asked) == len(complete) + len(begun)
    assert any(query_of(ask).own for _, _, ask, _ in asked) == nobody_is_found
    counted = Counter[int]()
    for peer, _, ask, time in complete:
        counted[peer] += len(query_of(ask).models) if time <= simulator.now else 0
    assert simulator.asked() == [counted[peer] for peer in range(12)]
    assert any(time > simulator.now for *_, time in complete)


def query_of(ask: Ask) -> Losses:
    assert isinstance(ask.query, Losses)
    return ask.query


@pytest.mark.parametrize(("seed", "nobody_is_found", "one_at_the_end"), [(20, False, False), (6, True, True)])
def test_neighbours_are_those_that_a_peer_was_told_last_until_the_end(
    seed: int, nobody_is_found: bool, one_at_the_end: bool
) -> None:
    """Those of step 1, and the strangers that were admitted since; in ascending order. The last update of a run may
    admit some; those that came later, when events ran ahead of the end, do not count."""
    simulator, log = admitting(seed, nobody_is_found)
    run(simulator)
    told: dict[PeerId, list[tuple[float, tuple[PeerId, ...]]]] = {}
    for time, peer, _, actions in log.entries:
        for action in actions:
            if isinstance(action, Chose):
                told.setdefault(peer, []).append((time, action.neighbours))
    assert simulator.neighbours() == {
        peer: next(found for time, found in reversed(answers) if time <= simulator.now)
        for peer, answers in told.items()
    }
    for peer, answers in told.items():
        for (_, before), (time, after) in pairwise(answers):
            assert set(before) <= set(after)
            assert list(after) == sorted(after)
            assert after != before
            assert (time, peer, after) in simulator.admissions
    times = [time for time, _, _ in simulator.admissions]
    assert (simulator.now in times, max(times) > simulator.now) == (one_at_the_end, not one_at_the_end)


class Nosy(Gossiping):
    """Asks for the losses of what it merges, and is told at once."""

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        return [Ask("losses", Losses(models)), *super().use(models)]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        return []


def test_what_is_asked_at_once_counts_at_once() -> None:
    """Two models in each of five rounds, the last of which ends half a unit after the question."""
    simulator, _ = fake_simulation(tiny(rounds=5, n_peers=2, patience=99), "random")
    for peer in simulator.peers:
        peer.plan = replace(peer.plan, behaviours={"gossiping": Nosy})
    assert run(simulator).asked() == [10] * 6


# --- progress ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [50, 2])
@pytest.mark.parametrize(
    ("method", "step2_model", "updates"), [("pens", "last", 9), ("pens", "best", 9), ("random", "last", 6)]
)
def test_progress_is_the_share_of_updates_that_are_done(
    method: MethodName, step2_model: str, updates: int, patience: int
) -> None:
    """A first training, 5 rounds, and 3 of step 1 where there is one. Whoever stopped early has done its share."""
    simulator, _ = fake_simulation(tiny(patience=patience, window=1, step2_model=step2_model), method)
    learners, expected = simulator.learners, [0.0]
    assert simulator.progress() == 0
    while not simulator.is_over():
        advance_together([simulator])
        stopped = sum(time < np.inf for time in stop_times(learners))
        expected.append((stopped + (6 - stopped) * len(expected) / updates) / 6)
        assert simulator.progress() == pytest.approx(expected[-1])
    assert expected[-1] == 1
    assert (expected == pytest.approx([done / updates for done in range(updates + 1)])) == (patience == 50)


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_scoring_on_as_many_samples_as_there_are_is_scoring_on_all(schedule: str) -> None:
    every, many, few = (
        run(simulation(tiny(schedule=schedule, patience=50, score_samples=count), "pens")) for count in (None, 9, 2)
    )
    assert decisions(many) == decisions(every)
    assert torch.equal(final_models(many), final_models(every))
    assert not torch.equal(final_models(few), final_models(every))


@pytest.mark.parametrize(("wire", "rows_each"), [("fp32", 1), ("int8", 2)])
def test_models_are_let_go_when_nobody_needs_them(wire: str, rows_each: int) -> None:
    for schedule in ("rounds", "async"):
        simulator = run(simulation(tiny(schedule=schedule, rounds=10, patience=50, wire=wire), "pens"))
        in_flight = len(simulator._queue.state()["entries"])
        assert simulator.learners.models.num_alive <= rows_each * (6 + 6 + in_flight)
        simulator.learners.let_go()
        assert simulator.learners.models.num_alive == 0


def test_received_models_are_rounded_and_own_ones_are_not() -> None:
    """A peer that merges no own model trains the rounded models of others; alone, rounding changes nothing."""
    cases: tuple[tuple[MethodName, bool], ...] = (("local", False), ("random", True))
    for method, changes in cases:
        exact, rounded = (run(simulation(tiny(wire=wire, patience=50), method)) for wire in ("fp32", "int8"))
        assert torch.equal(final_models(exact), final_models(rounded)) != changes


def test_a_merge_reads_what_the_wire_left_of_received_models() -> None:
    simulator = run(simulation(tiny(wire="int8", patience=50), "random"), batches=3)
    learners = simulator.learners
    layout = learners.executor.engine.network.stored
    own = PeerId(0)
    mine, theirs = simulator.current[own], [ref for ref in simulator.current if ref.owner != own][:2]
    rows = learners.names.rows
    assert all(ref in rows for ref in (mine, *theirs))
    action = Update(tuple(theirs), None, 1, may_stop=False)
    job = Updating(own, 0.0, action, action.models, mine, ModelRef(own, 99))
    read = learners.models.read(learners._updater.inputs.group(job))
    assert torch.equal(read[0], learners.models.read([rows[mine]])[0])
    assert torch.equal(read[1:], round_rows(learners.models.read([rows[r] for r in theirs]), layout, "int8"))


def test_a_peer_that_stopped_early_works_no_more_and_serves_its_best_model() -> None:
    simulator = run(simulation(tiny(rounds=40, patience=2, window=1), "random"))
    learners = simulator.learners
    assert all(map(np.isfinite, stop_times(learners)))
    assert learners.num_updates < 6 * 41
    last = {r.peer: r for r in learners.history.sorted()}
    for peer, record in last.items():
        assert record.time == learners.by_peer[peer].stop_time
        assert learners.names.rows[simulator.current[PeerId(peer)]] == learners.by_peer[PeerId(peer)].best
    assert best_rounds(learners, window=1) != {peer: record.version for peer, record in last.items()}


def best_rounds(learners: Learners, window: int = 5) -> dict[int, int]:
    """Of each peer, by its history: the version with the highest mean of some validation accuracies."""
    found = {}
    for peer in range(6):
        history = [r for r in learners.history.sorted() if r.peer == peer and not r.searching]
        accuracy = [r.val_accuracy for r in history]
        means = [np.mean(accuracy[max(0, i - window + 1) : i + 1]) for i in range(len(history))]
        found[peer] = next(r.version for r, mean in zip(history, means, strict=True) if mean > max(means) - 1e-9)
    return found


def test_the_tested_model_is_the_best_on_validation_or_the_last() -> None:
    """A run that ends after a peer's best round ends with its best model."""
    best = run(simulation(tiny(patience=50, tested="best"), "local"))
    last = {
        rounds: run(simulation(tiny(patience=50, tested="last", rounds=rounds), "local"))
        for rounds in range(1, tiny().gossip.rounds + 1)
    }
    for peer, version in best_rounds(best.learners).items():
        shorter = last[max(1, version - 1)]
        if version > 1:
            assert torch.equal(final_models(best)[peer], final_models(shorter)[peer])
    assert list(last[tiny().gossip.rounds].learners.history) == list(best.learners.history)


def test_the_average_is_validated_and_tested_where_it_is_to_be() -> None:
    """Where everybody merges everybody's, all averages of a round are the same; what is trained of them is not."""
    trained, merged = (
        run(simulation(tiny(patience=50, window=1, n_peers=5, rounds=8, validated=validated), "random"))
        for validated in ("trained", "merged")
    )
    assert alike(trained) == 0
    assert alike(merged) > 0
    assert [r.train_loss for r in trained.learners.history] == [r.train_loss for r in merged.learners.history]
    for simulator in (trained, merged):
        learners = simulator.learners
        found = validate(learners)
        history = {(int(r.peer), r.version): r.val_accuracy for r in learners.history}
        assert found == [history[item] for item in best_rounds(learners, window=1).items()]


def alike(simulator: Simulator) -> int:
    """Pairs of peers whose tested models are the same but for the order of sums."""
    models = final_models(simulator)
    return sum(torch.allclose(a, b, atol=1e-6) for a, b in combinations(models, 2))


def validate(learners: Learners) -> list[float]:
    """Each tested model's accuracy on its peer's validation data."""
    executor, slots = learners.executor, list(range(6))
    samples = executor._samples["val"]
    return list(map(float, executor.engine.evaluate(learners.models, learners.tested_rows(), samples, slots).accuracy))


def test_a_loss_that_is_not_a_number_keeps_the_last_good_model() -> None:
    settings_ = tiny(lr=1e30, optimizer="sgd", patience=50, tested="last")
    simulator = simulation(settings_, "random")
    first = simulator.learners.models.read(simulator.learners.tested_rows()).clone()
    run(simulator)
    assert set(simulator.learners.setbacks) == set(range(6))
    models = final_models(simulator)
    assert models.isfinite().all()
    assert torch.equal(models, first)


def test_an_optimizer_remembers_where_nothing_is_merged_until_its_peer_stops() -> None:
    """One more update of `local` is what the engine makes of the last model and what its optimizer remembers."""
    short, long = (run(simulation(tiny(patience=50, tested="last", rounds=rounds), "local")) for rounds in (2, 3))
    learners = short.learners
    peers = list(range(6))
    assert [moments.steps for moments in moments_of(learners)] == [3 * 2 * 3] * 6
    remembered = learners.executor._recalled(moments_of(learners))
    keys = [rng.key(learners.rules.seed, "update", peer, 4) for peer in peers]
    data, engine = learners.executor._samples["train"], learners.executor.engine
    rows = learners.models.read(learners.tested_rows())
    for moments, is_same in ((remembered, True), (None, False)):
        trained = engine.train(rows.clone(), data, peers, keys, 2, learners.rules.recipe, moments)
        assert torch.equal(trained.rows, final_models(long)) == is_same
    stopped = run(simulation(tiny(rounds=40, patience=2, window=1), "local")).learners
    assert not moments_of(stopped)
    assert stopped.models.num_alive <= 2 * 6


def test_an_update_that_is_undone_leaves_no_trace_in_its_optimizer() -> None:
    learners = run(simulation(tiny(lr=1e30, optimizer="sgd", momentum=0.9, patience=50), "local")).learners
    assert set(learners.setbacks) == set(range(6))
    assert [moments.steps for moments in moments_of(learners)] == [0] * 6
    assert not any(learners.models.read(moments.rows).any() for moments in moments_of(learners))


def test_who_stopped_early_serves_its_best_average_where_that_is_validated() -> None:
    simulator = run(simulation(tiny(rounds=40, patience=2, window=1, validated="merged"), "random"))
    learners = simulator.learners
    assert all(map(np.isfinite, stop_times(learners)))
    served = [learners.names.rows[ref] for ref in simulator.current]
    assert served == learners.tested_rows() == [learner.best for learner in learners.by_peer.values()]


@pytest.mark.parametrize("validated", ["trained", "merged"])
@pytest.mark.parametrize("step2_model", ["first", "best"])
def test_step_two_begins_with_the_untrained_model_or_with_step_ones_best(
    step2_model: str, validated: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One update after step 1, which trains that model and nothing else: what `local` makes of it with that key."""
    log = Log()
    found: dict[int, list[tuple[float, torch.Tensor]]] = {}
    observe = Updater._observe

    def note(self: Updater, learner: Learner, job: Updating, validated: Sequence[Validated]) -> Validated:
        if not job.action.may_stop:
            (model,) = validated
            found.setdefault(job.peer, []).append((model.loss, self._stack.read([model.row])[0].clone()))
        return observe(self, learner, job, validated)

    monkeypatch.setattr(Updater, "_observe", note)
    settings_ = tiny(patience=50, step2_model=step2_model, validated=validated, rounds=1, step1_rounds=4, lr=0.02)
    simulator = run(simulation(settings_, "pens", log=log))
    back = [a for _, _, _, actions in log.entries for a in actions if isinstance(a, Update) and a.from_kept]
    assert len(back) == len(simulator.peers)
    assert all(not action.models and action.may_stop for action in back)
    for peer in simulator.peers:
        assert simulator.learners.by_peer[peer.me].num_computed == 1 + 4 + 1
    engine, rules = simulator.learners.executor.engine, simulator.learners.rules
    first = first_models(engine, made_of(settings_, "pens"), rules.seed, len(simulator.peers))
    if step2_model == "best":
        places = {peer: np.argmin([loss for loss, _ in models]) for peer, models in found.items()}
        assert len(set(places.values())) > 1
        first = torch.stack([models[places[peer]][1] for peer, models in sorted(found.items())])
    keys = [rng.key(rules.seed, "update", peer, 6) for peer in range(len(first))]
    holders_ = rotated_federation(tiny_dataset(), settings_.scenario, rules.seed).peers
    data = SampleStack([holder.train for holder in holders_], first.device)
    trained = engine.train(first, data, range(len(first)), keys, settings_.training.epochs, rules.recipe)
    assert torch.equal(trained.rows, final_models(simulator))


def test_where_the_first_training_of_step_two_fails_it_begins_with_its_model_untrained(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings_ = tiny(patience=50, step2_model="first", tested="last", rounds=1, step1_rounds=2)
    simulator, made = simulation(settings_, "pens"), made_of(settings_, "pens")
    keys = {rng.key(simulator.learners.rules.seed, "update", peer.me, 4) for peer in simulator.peers}

    def failing(call: Train) -> Generator[Call, Answer, NewModels]:
        answer = yield from train(call)
        if keys & set(call.keys):
            answer.loss[:] = np.nan
        return answer

    monkeypatch.setattr("pens.learning.updating.train", failing)
    run(simulator)
    assert set(simulator.learners.setbacks) == set(range(6))
    first = first_models(simulator.learners.executor.engine, made, simulator.learners.rules.seed, 6)
    assert torch.equal(final_models(simulator), first)


@pytest.mark.parametrize(("written_with", "read"), [("last", "best"), ("first", "last")])
def test_a_state_of_another_beginning_of_step_two_is_gone_on_with(written_with: str, read: str) -> None:
    """A peer that kept no model begins step 2 with its newest one; one that kept a model in vain lets it go."""
    simulator = run(simulation(tiny(step2_model=written_with), "pens"), batches=2)
    other = simulation(tiny(step2_model=read), "pens")
    other.restore(*simulator.state())
    run(other)
    assert all(learner.kept is None for learner in other.learners.by_peer.values())
    assert all(learner.has_stopped or learner.num_computed > 4 for learner in other.learners.by_peer.values())
