# SPDX-License-Identifier: Apache-2.0
"""The paper's rules in whole runs, worked out by hand. What the numbers in a model mean: `tests/byhand.py`."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from pens import rng
from pens.data.scenarios import Federation, PeerData
from pens.protocol.messages import PeerId
from pens.protocol.policies import Selection, SelectionRule, Tally, choose_neighbours
from tests.byhand import CountingEngine, federation, models_of, run_by_hand, sample

# Five peers of the clusters {0, 1, 2} and {3, 4}. [receiver, sender]: peer 0 likes peer 1's models best, peers 1, 2 and
# 4 like peer 0's, peer 3 likes peer 4's. Peer 4 is mistaken.
CLUSTERS = (0, 0, 0, 1, 1)
LOSSES = ((9, 1, 2, 3, 4), (1, 9, 2, 3, 4), (1, 2, 9, 3, 4), (4, 3, 2, 9, 1), (1, 2, 3, 4, 9))
PENS = {"rounds": 1, "n_peers": 3, "n_sampled": 4, "m": 1, "step1_rounds": 1, "step1_samplings": 2, "step1_epochs": 2}


@pytest.mark.parametrize("max_batch", [0, 1])
def test_pens_in_rounds(max_batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 2, then Algorithm 1 among the selected (sections 4.1 and 4.2).

    First training, E = 1:  peer p has e_p, one epoch of its own.
    Step 1: everybody compares the models of all four others, twice, merges the best one of the second comparison with
    its own and trains 2 epochs.  Peer 0: (e0 + e1) / 2 + 2 e0 = [2.5, 0.5, 0, 0, 0]
    The best one was selected twice, more often than expected, m · S / (k − 1) = 1 · 2 / 4, and is the one neighbour.
    Step 2: n_peers = 3, but one neighbour is all there are. It is pulled from the models that step 1 ended with:
    peer 0:  ([2.5, 0.5, 0, 0, 0] + [0.5, 2.5, 0, 0, 0]) / 2 + e0 = [2.5, 1.5, 0, 0, 0]
    peer 2:  ([0.5, 0, 2.5, 0, 0] + [2.5, 0.5, 0, 0, 0]) / 2 + e2 = [1.5, 0.25, 2.25, 0, 0]
    peer 3:  ([0, 0, 0, 2.5, 0.5] + [0.5, 0, 0, 0, 2.5]) / 2 + e3 = [0.25, 0, 0, 2.25, 1.5]
    """
    data, settings = federation(CLUSTERS, LOSSES, test_classes=(0, 4)), {**PENS, "max_batch": max_batch}
    (run,), _ = run_by_hand(monkeypatch, data, "pens", settings)
    assert run.neighbours == {0: (1,), 1: (0,), 2: (0,), 3: (4,), 4: (0,)}
    assert models_of(run) == [
        [2.5, 1.5, 0, 0, 0],
        [1.5, 2.5, 0, 0, 0],
        [1.5, 0.25, 2.25, 0, 0],
        [0.25, 0, 0, 2.25, 1.5],
        [1.5, 0.25, 0, 0, 2.25],
    ]
    # section 5.4: each peer on its own cluster's test data, class 0 for the first and class 4 for the second
    assert run.accuracy.tolist() == [2.5 / 4, 1.5 / 4, 1.5 / 4, 1.5 / 4, 2.25 / 4]
    # table 5: four of five neighbours are of the own cluster; of its 2, 2, 2, 1, 1 others 1, 1, 1, 1, 0 are selected
    assert run.agreement
    assert run.agreement.precision == pytest.approx(4 / 5)
    assert run.agreement.recall == pytest.approx((0.5 + 0.5 + 0.5 + 1 + 0) / 5)


def test_what_pens_in_rounds_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In step 1 each peer pulls 2 × 4 models and is pulled from by four others, twice. In step 2 each pulls one: peers
    1, 2 and 4 from peer 0, peer 0 from peer 1, peer 3 from peer 4. A model has 5 numbers of 4 bytes."""
    (run,), _ = run_by_hand(monkeypatch, federation(CLUSTERS, LOSSES), "pens", PENS)
    traffic = run.communication
    assert traffic.sent.tolist() == [8 + 3, 8 + 1, 8, 8, 8 + 1]
    assert traffic.received.tolist() == [9] * 5
    assert traffic.scored.tolist() == [8] * 5
    assert traffic.merged.tolist() == [2] * 5
    assert traffic.refused.tolist() == [0] * 5
    assert traffic.model_bytes == 20
    assert traffic.bytes_sent == traffic.bytes_received == 45 * 20
    merged = run.pairs.merge_matrix(5)
    assert merged.tolist() == [[0, 2, 0, 0, 0], [2, 0, 0, 0, 0], [2, 0, 0, 0, 0], [0, 0, 0, 0, 2], [2, 0, 0, 0, 0]]
    assert run.history.time.tolist() == [0.5] * 5 + [1.5] * 5 + [2.5] * 5
    assert run.history.merged.tolist() == [0] * 5 + [1] * 10
    assert run.history.searching.tolist() == [True] * 10 + [False] * 5
    assert run.history.received is not None
    assert run.history.received.tolist() == [0] * 5 + [8] * 5 + [9] * 5
    assert run.rounds == 3


@pytest.mark.parametrize(("wire", "model_bytes"), [("fp32", 4 * 5), ("fp16", 2 * 5), ("int8", 4 * 5)])
def test_what_a_model_weighs_depends_on_how_it_travels(
    wire: str, model_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five numbers of four bytes, or of two; int8 is for matrices, and leaves a tensor with one axis as it is."""
    (run,), _ = run_by_hand(monkeypatch, federation(CLUSTERS, LOSSES), "pens", {**PENS, "wire": wire})
    assert run.communication.model_bytes == model_bytes


def test_models_are_compared_on_the_receivers_training_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 2, CALCULATELOSS: the sender's model, the receiver's training data. Where validation data are asked for
    (not in the paper), the choice is the opposite here: the worst on training data is the best on them."""
    choices = {}
    for score_on in ("train", "val"):
        (run,), engine = run_by_hand(
            monkeypatch, federation(CLUSTERS, LOSSES), "pens", {**PENS, "score_on": score_on, "step1_samplings": 1}
        )
        choices[score_on] = run.neighbours
        # after the first training: everybody's model of four others, each on the receiver's samples
        compared = engine.evaluations[1]
        assert sorted(compared) == sorted(
            (receiver, [float(sender == n) for n in range(5)])
            for receiver in range(5)
            for sender in range(5)
            if sender != receiver
        )
    assert choices["train"] == {0: (1,), 1: (0,), 2: (0,), 3: (4,), 4: (0,)}
    assert choices["val"] == {0: (4,), 1: (4,), 2: (4,), 3: (0,), 4: (3,)}


def test_the_top_two_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    """SELECT_TOP_M with m = 2 of four: peer 0 takes 1 and 2, peer 4 takes 0 and 3, in whatever order they come.
    Three models are averaged, the own one included: peer 0 has (e0 + e1 + e2) / 3 + e0."""
    losses = ((0, 5, 6, 7, 8), (5, 0, 6, 5, 6), (9, 9, 0, 7, 8), (3, 2, 1, 0, 4), (1, 5, 5, 1, 0))
    settings = {**PENS, "m": 2, "step1_samplings": 1, "step1_epochs": 1}
    (run,), engine = run_by_hand(monkeypatch, federation(CLUSTERS, losses), "pens", settings)
    assert run.neighbours == {0: (1, 2), 1: (0, 3), 2: (3, 4), 3: (1, 2), 4: (0, 3)}
    in_step1 = [training.before for training in engine.trainings[5:10]]
    third = pytest.approx(1 / 3)
    assert in_step1 == [
        [third, third, third, 0, 0],
        [third, third, 0, third, 0],
        [0, 0, third, third, third],
        [0, third, third, third, 0],
        [third, 0, 0, third, third],
    ]


@pytest.mark.parametrize(("schedule", "found"), [("rounds", (1,)), ("async", (1, 2))])
def test_what_is_expected_counts_the_others_or_in_async_the_models_received(
    schedule: str, found: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SELECTNEIGHBORS: k = 5 peers have k − 1 = 4 others each. Of 9 samplings of m = 1, chance gives each of these
    m · S / (k − 1) = 2.25 selections: three are more, two are not (they would be with k = 5: 1.8). In async each peer
    counts what it heard: of 10, 7, 12 and 11 models among n_sampled = 4, chance selects 2.5, 1.75, 3 and 2.75."""
    rules = []

    def look(tally: Tally, rule: SelectionRule) -> Selection:
        rules.append(rule)
        return choose_neighbours(tally, rule)

    monkeypatch.setattr("pens.protocol.searching.choose_neighbours", look)
    run_by_hand(monkeypatch, federation(CLUSTERS, LOSSES), "pens", {**PENS, "schedule": schedule})
    assert len(rules) == 5
    sampled = Counter({PeerId(1): 10, PeerId(2): 7, PeerId(3): 12, PeerId(4): 11})
    nine = Tally(Counter({PeerId(1): 3, PeerId(2): 2, PeerId(3): 2, PeerId(4): 2}), sampled, samplings=9, size=4)
    for rule in rules:
        assert choose_neighbours(nine, rule).neighbours == found


def test_random_gossip_averages_n_peers_models_and_the_own_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 1: three peers, n_peers = 2, E = 2.  Round 1, peer 0: (2 e0 + 2 e1 + 2 e2) / 3 + 2 e0
    = [8/3, 2/3, 2/3]; round 2: all three average to [4/3, 4/3, 4/3]. Without the own model, round 1 gives
    (2 e1 + 2 e2) / 2 + 2 e0 = [2, 1, 1]."""
    data = federation((0, 0, 1), [[0, 0, 0]] * 3)
    settings = {"n_peers": 2, "epochs": 2, "tested": "last"}
    (run,), engine = run_by_hand(monkeypatch, data, "random", {**settings, "rounds": 2})
    assert [t.before for t in engine.trainings[:3]] == [[0, 0, 0]] * 3
    assert [t.before for t in engine.trainings[3:6]] == [[pytest.approx(2 / 3)] * 3] * 3
    assert [t.before for t in engine.trainings[6:]] == [[pytest.approx(4 / 3)] * 3] * 3
    assert {t.epochs for t in engine.trainings} == {2}
    assert models_of(run)[0] == pytest.approx([4 / 3 + 2, 4 / 3, 4 / 3], abs=1e-5)
    assert models_of(run)[2] == pytest.approx([4 / 3, 4 / 3, 4 / 3 + 2], abs=1e-5)
    (run,), _ = run_by_hand(monkeypatch, data, "random", {**settings, "rounds": 1, "own_in_merge": False})
    assert models_of(run) == [[2, 1, 1], [1, 2, 1], [1, 1, 2]]


def test_the_oracle_gossips_within_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5.3. Clusters {0, 2} and {1, 3}, n_peers = 3, but each peer has one of its own: (e0 + e2) / 2 + e0."""
    data = federation((0, 1, 0, 1), [[0] * 4] * 4)
    (run,), _ = run_by_hand(monkeypatch, data, "oracle", {"rounds": 1, "n_peers": 3, "n_sampled": 3})
    assert models_of(run) == [[1.5, 0, 0.5, 0], [0, 1.5, 0, 0.5], [0.5, 0, 1.5, 0], [0, 0.5, 0, 1.5]]
    assert run.pairs.receiver.tolist() == [0, 1, 2, 3]
    assert run.pairs.sender.tolist() == [2, 3, 0, 1]


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_local_trains_alone_and_its_optimizer_goes_on(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5.3. First training and three updates, of 2 epochs each: 8 epochs. Nothing is merged, so the optimizer
    remembers; after a merge it begins anew (random)."""
    data = federation((0, 0, 1), [[0, 0, 0]] * 3)
    settings = {"rounds": 3, "epochs": 2, "n_peers": 2, "schedule": schedule, "tested": "last"}
    (run,), engine = run_by_hand(monkeypatch, data, "local", settings)
    assert models_of(run) == [[8, 0, 0], [0, 8, 0], [0, 0, 8]]
    assert [t.remembered for t in engine.trainings if t.slot == 1] == [0, 2, 4, 6]
    traffic = run.communication
    assert not any(counts.any() for counts in (traffic.sent, traffic.received, traffic.merged, traffic.scored))
    for method in ("random", "oracle") if schedule == "rounds" else ("random",):
        _, engine = run_by_hand(monkeypatch, federation((0, 0, 0), [[0, 0, 0]] * 3), method, settings)
        assert {t.remembered for t in engine.trainings} == {None}


def central_federation() -> Federation:
    """Clusters {0, 2} and {1}. Training samples are of class 0, 1, 0; validation samples of class 2."""
    peers = tuple(PeerData(sample([0, 0, 0], label), sample([0, 0, 0], 2)) for label in (0, 1, 0))
    return Federation(peers, (0, 1, 0), (sample([0, 0, 0], 0), sample([0, 0, 0], 1)), ("a", "b"))


def test_central_trains_on_everybodys_data_and_is_tested_on_each_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5.3. A first training and two rounds of 2 epochs on all training samples, of which two are of class 0 and
    one of class 1: [12, 6, 0]. Two thirds right for the peers of the first cluster, one third for the other."""
    settings = {"central_rounds": 2, "central_epochs": 2, "central_batch_size": 7, "tested": "last", "n_peers": 2}
    (run,), engine = run_by_hand(monkeypatch, central_federation(), "central", settings)
    assert models_of(run) == [[12, 6, 0]]
    assert run.accuracy.tolist() == pytest.approx([2 / 3, 1 / 3, 2 / 3])
    assert [(t.epochs, t.recipe.batch_size, t.remembered) for t in engine.trainings] == [(2, 7, n) for n in (0, 2, 4)]
    assert run.data_sizes
    assert (run.data_sizes.train.tolist(), run.data_sizes.val.tolist()) == ([3], [3])


def test_central_stops_by_its_own_window_and_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation accuracy never changes: the first update after the first training is the best, and `central_patience`
    = 2 updates later it stops. The peers' own patience would be 4, their own number of rounds 5."""
    settings = {"central_rounds": 9, "central_patience": 2, "patience": 4, "window": 3, "n_peers": 2}
    (run,), engine = run_by_hand(monkeypatch, central_federation(), "central", settings)
    assert len(engine.trainings) == 1 + 1 + 2
    assert models_of(run) == [[4, 2, 0]]


def test_early_stopping_begins_after_the_first_training_and_tests_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5.4. `local` never gets better or worse: of its updates the first is the best, which makes 2 epochs with
    the first training, and after patience = 3 more it stops, at time 4.5. `tested = last` serves the best model, too,
    since that is what a peer that stopped ends with."""
    data = federation((0, 0, 1), [[0, 0, 0]] * 3)
    for tested in ("best", "last"):
        (run,), engine = run_by_hand(
            monkeypatch, data, "local", {"rounds": 9, "patience": 3, "tested": tested, "n_peers": 2}
        )
        assert models_of(run) == [[2, 0, 0], [0, 2, 0], [0, 0, 2]]
        assert len(engine.trainings) == 3 * (1 + 1 + 3)
        assert run.history.time.max() == 4.5


def test_who_stopped_serves_its_best_model_and_asks_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5.4, patience = 1. Both peers validate the share of the model that peer 0 trained: what peer 0 merges
    from peer 1 makes it worse, and for peer 1 it is the other way round.

    peer 0:  [1, 0], then (e0 + e1) / 2 + e0 = [1.5, 0.5], 75 %; then [1, 1] + e0 = [2, 1], 67 %: it stops, and serves
             [1.5, 0.5] from now on
    peer 1:  [0.5, 1.5], 25 %; [1, 2], 33 %; ([1.5, 0.5] + [1, 2]) / 2 + e1 = [1.25, 2.25], 36 %;
             ([1.5, 0.5] + [1.25, 2.25]) / 2 + e1 = [1.375, 2.375], 37 %
    """
    data = federation((0, 0), [[0, 0]] * 2, val_classes=(0, 0))
    settings = {"rounds": 4, "patience": 1, "n_peers": 1, "n_sampled": 1}
    (run,), engine = run_by_hand(monkeypatch, data, "random", settings)
    assert models_of(run) == [[1.5, 0.5], [1.375, 2.375]]
    assert [t.slot for t in engine.trainings] == [0, 1, 0, 1, 0, 1, 1, 1]
    assert run.communication.received.tolist() == [2, 4]
    assert run.communication.sent.tolist() == [4, 2]
    assert run.communication.merged.tolist() == [2, 4]


def test_step_one_does_not_stop_early_and_its_history_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 5.4: a peer's own share, which it validates, falls from 100 % with every merge. Step 1 goes on for its
    four rounds all the same, with patience = 1. In step 2 the first update is the best, the second stops it: the tested
    model is that of update 6, not the first one."""
    settings = {**PENS, "rounds": 9, "patience": 1, "step1_rounds": 4, "step1_samplings": 1, "step1_epochs": 1}
    losses = [[9 * (sender // 2 != receiver // 2) for sender in range(4)] for receiver in range(4)]
    data = federation((0, 0, 1, 1), losses)
    (run,), engine = run_by_hand(monkeypatch, data, "pens", {**settings, "n_sampled": 3})
    assert len(engine.trainings) == 4 * (1 + 4 + 2)
    # peers 0 and 1 merge only each other's: after n updates n epochs in all, of which the owner trained one more
    assert models_of(run) == [[3.5, 2.5, 0, 0], [2.5, 3.5, 0, 0], [0, 0, 3.5, 2.5], [0, 0, 2.5, 3.5]]


def test_the_mean_of_the_window_decides_which_model_is_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peer 1's share as above, but of the first update of peer 0 the mean of two: 75 %, then (75 + 67) / 2 = 71 %."""
    data = federation((0, 0), [[0, 0]] * 2, val_classes=(0, 0))
    (run,), engine = run_by_hand(
        monkeypatch, data, "random", {"rounds": 4, "patience": 2, "window": 2, "n_peers": 1, "n_sampled": 1}
    )
    assert [t.slot for t in engine.trainings].count(0) == 1 + 3
    assert models_of(run)[0] == [1.5, 0.5]


def test_a_first_training_that_fails_leaves_the_model_untrained(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that is not a number undoes the update: peer 1's first training. Round 1: (e0 + 0) / 2 + e0 = 1.5 e0."""
    data = federation((0, 0), [[0, 0]] * 2)
    engine = CountingEngine(2)
    engine.fails = {(1, 0)}
    settings = {"rounds": 1, "n_peers": 1, "n_sampled": 1}
    (run,), _ = run_by_hand(monkeypatch, data, "random", settings, engine=engine)
    assert models_of(run) == [[1.5, 0], [0.5, 1]]
    assert run.warnings == ("peer 1: 1 update(s) undone, the loss was not a finite number",)


@pytest.mark.parametrize("seed", range(6))
def test_random_gossip_in_virtual_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Algorithm 1 as listed: WAIT(Δ), SEND, ONRECEIVEMODEL. Two peers, n_peers = 1, Δ = 1, latency 0.25, training 0.5.

    Both train until 0.5 and then wait a random part of Δ, φ. Peer p sends at 0.5 + φ_p, 1.5 + φ_p, …; the other one has
    the model a quarter later, merges it at once and has trained half a unit after that. So update n of peer 0 is
    complete at n + 0.25 + φ_1, and it merges what peer 1 had at n − 0.5 + φ_1.
    """
    data = federation((0, 0), [[0, 0]] * 2)
    timing = {"schedule": "async", "interval": 1.0, "jitter": 0.0, "latency": 0.25, "training_time": 0.5}
    settings = {**timing, "rounds": 3, "n_peers": 1, "n_sampled": 1, "tested": "last"}
    (run,), _ = run_by_hand(monkeypatch, data, "random", settings, seeds=[seed])
    phases = [rng.number(rng.key(seed, "peer", peer), 1) for peer in (0, 1)]
    models, done = [[[1.0, 0.0]], [[0.0, 1.0]]], [[0.5], [0.5]]
    for number in (1, 2, 3):
        for me, other in ((0, 1), (1, 0)):
            done[me].append(number + 0.25 + phases[other])
        for me, other in ((0, 1), (1, 0)):
            sent = number - 0.5 + phases[other]
            theirs = models[other][sum(time <= sent for time in done[other]) - 1]
            merged = [(a + b) / 2 for a, b in zip(models[me][-1], theirs, strict=True)]
            models[me].append([merged[0] + (me == 0), merged[1] + (me == 1)])
    assert models_of(run) == [pytest.approx(models[peer][-1], abs=1e-4) for peer in (0, 1)]
    times = {peer: run.history.time[run.history.peer == peer] for peer in (0, 1)}
    assert times[0] == pytest.approx(done[0])
    assert times[1] == pytest.approx(done[1])
    end = max(done[0][-1], done[1][-1])
    assert run.rounds == pytest.approx(end)
    for me, other in ((0, 1), (1, 0)):
        assert run.communication.sent[me] == math.floor(end - 0.5 - phases[me]) + 1
        assert run.communication.received[me] == math.floor(end - 0.75 - phases[other] + 1e-9) + 1
    assert run.communication.merged.tolist() == [3, 3]


def test_training_takes_as_long_as_it_has_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update of E = 2 epochs takes 0.5, one of step 1 with its 3 epochs takes 0.75. Latency 0.25, n_sampled = 2.

    The first training ends at 0.5. Peer p sends at 0.5 + φ_p and 1.5 + φ_p: with this seed first to p + 1 and then to
    p + 2, of three peers in a circle. So each has both others' models when the second one comes, at 1.75 + φ, compares
    them, and has trained at 1.75 + φ + 0.75 = 2.5 + φ.
    """
    timing = {"schedule": "async", "interval": 1.0, "jitter": 0.0, "latency": 0.25, "training_time": 0.5}
    search = {"n_sampled": 2, "m": 1, "step1_rounds": 1, "step1_samplings": 1, "step1_epochs": 3}
    settings = {**timing, **search, "epochs": 2, "rounds": 1, "n_peers": 1}
    seed, others = 126, ((1, 2), (0, 2), (0, 1))
    keys = [rng.key(seed, "peer", peer) for peer in range(3)]
    for draw, step in ((2, 1), (4, 2)):
        assert [others[p][int(rng.number(keys[p], draw) * 2)] for p in range(3)] == [(p + step) % 3 for p in range(3)]
    (run,), _ = run_by_hand(monkeypatch, federation((0, 0, 0), [[0, 0, 0]] * 3), "pens", settings, seeds=[seed])
    for receiver in range(3):
        phase = rng.number(keys[receiver - 2], 1)
        times = run.history.time[run.history.peer == receiver].tolist()
        assert times[:2] == pytest.approx([0.5, 2.5 + phase])


def test_seeds_decide_who_is_asked_and_peers_draw_for_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """RANDOMPEER: 20 peers that ask 3 of 19 others each; hardly two of them ask the same ones by chance."""
    data = federation((0,) * 20, [[0] * 20] * 20)
    runs, _ = run_by_hand(monkeypatch, data, "random", {"rounds": 1, "n_peers": 3}, seeds=2)
    asked = [[frozenset(run.pairs.sender[run.pairs.receiver == p].tolist()) for p in range(20)] for run in runs]
    assert all(len(sources) == 3 for sources in asked[0])
    assert len(set(asked[0])) >= 19
    assert asked[0] != asked[1]
