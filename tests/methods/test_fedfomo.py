# SPDX-License-Identifier: Apache-2.0
"""FedFomo: steps towards better models, and whom a peer asks, worked out by hand."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest

from pens.errors import SettingsError
from pens.measuring.results import DataSizes, work_of
from pens.methods.fedfomo import Optimizing
from pens.methods.method import Participants
from pens.methods.names import check_methods
from pens.protocol.messages import (
    Answered,
    Ask,
    Distances,
    Drop,
    Losses,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Request,
    Start,
    Update,
    Updated,
    Wake,
)
from pens.protocol.peer import Peer
from pens.settings.tree import Settings
from tests.byhand import federation, models_of, run_by_hand
from tests.conftest import TINY
from tests.fakes import fake_simulation
from tests.methods.specs import spec_of
from tests.simulations import Log, run

ONE, TWO, THREE = (ModelRef(PeerId(owner), 1) for owner in (1, 2, 3))


def stepping(num_peers: int = 6, **values: object) -> Peer:
    settings = Settings().replace({**TINY, "n_peers": 2, **values})
    it = Peer(PeerId(0), 1, spec_of("fedfomo", settings).plan(9, 5, num_peers), tuple(map(PeerId, range(1, num_peers))))
    it.handle(Start())
    it.handle(Updated())
    return it


def behaviour(it: Peer) -> Optimizing:
    assert isinstance(it.behaviour, Optimizing)
    return it.behaviour


def test_better_models_are_merged_by_what_they_gain_on_the_way() -> None:
    """The own loss is 1. The first model gains 0.5 over a distance of 2, the second loses 1 over 4, and the third gains
    0.2 over 0.1: quotients of 1/4, −1/4 and 2, of which the positive ones are 1/9 and 8/9 of their sum. The own model
    counts 1 − 1/9 − 8/9 = 0."""
    it = stepping()
    assert it.handle(Pulled((ONE, TWO, THREE))) == [
        Ask("losses", Losses((ONE, TWO, THREE), on="val", own=True)),
        Ask("distances", Distances((ONE, TWO, THREE), "l2")),
    ]
    assert it.handle(Answered("losses", (0.5, 2.0, 0.8, 1.0))) == []
    again = Peer(PeerId(0), 1, it.plan, it.reachable)
    again.restore(json.loads(json.dumps(it.state())))
    for peer in (it, again):
        drop, update = peer.handle(Answered("distances", (2.0, 4.0, 0.1)))
        assert drop == Drop(TWO, "judged")
        assert isinstance(update, Update)
        assert (update.models, update.epochs, update.may_stop) == ((ONE, THREE), 2, True)
        assert update.weights == pytest.approx((0, 1 / 9, 8 / 9))
        assert behaviour(peer).affinity == pytest.approx({1: 0.25, 2: -0.25, 3: 2.0})
    assert vars(behaviour(again)).keys() == vars(behaviour(it)).keys()
    assert again.state() == it.state()
    it.handle(Updated())
    it.handle(Pulled((TWO, THREE)))
    it.handle(Answered("losses", (1.0, 2.0, 1.5)))
    it.handle(Answered("distances", (1.0, 1.0)))
    assert behaviour(it).affinity == pytest.approx({1: 0.25, 2: 0.25, 3: 1.5})


def test_models_that_come_before_the_answers_wait_for_the_next_update() -> None:
    """As where models are pushed, and a peer waits for one model."""
    settings = Settings().replace({**TINY, "n_peers": 1, "schedule": "async"})
    it = Peer(PeerId(0), 1, spec_of("fedfomo", settings).plan(9, 5, 4), tuple(map(PeerId, (1, 2, 3))))
    it.handle(Start())
    it.handle(Updated())
    assert len(it.handle(Received(ONE))) == 2
    assert it.handle(Received(TWO)) == []
    it.handle(Answered("losses", (0.0, 1.0)))
    (update,) = it.handle(Answered("distances", (1.0,)))
    assert isinstance(update, Update)
    assert update.models == (ONE,)
    losses, _ = it.handle(Updated())
    assert losses == Ask("losses", Losses((TWO,), on="val", own=True))


def test_without_a_better_model_a_peer_trains_its_own() -> None:
    it = stepping()
    it.handle(Pulled((ONE, TWO)))
    it.handle(Answered("losses", (1.0, 3.0, 1.0)))
    drops = [Drop(ONE, "judged"), Drop(TWO, "judged")]
    assert it.handle(Answered("distances", (1.0, 1.0))) == [*drops, Update((), None, 2, may_stop=True)]
    it.handle(Updated())
    assert it.handle(Pulled(())) == [Update((), None, 2, may_stop=True)]


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_is_no_better_model(number: float) -> None:
    """The first model has no loss, the second no distance, and the third lies where the own model does; only the loss
    tells something of the first."""
    it = stepping()
    it.handle(Pulled((ONE, TWO, THREE)))
    it.handle(Answered("losses", (number, 0.5, 0.5, 1.0)))
    *drops, update = it.handle(Answered("distances", (3.0, number, 0.0)))
    assert len(drops) == 3
    assert update == Update((), None, 2, may_stop=True)
    assert behaviour(it).affinity == {1: -333.0, 2: 0.0, 3: 0.0}


def test_a_peer_asks_those_with_the_highest_affinity_or_with_probability_epsilon_anybody() -> None:
    """Five others, of which 3 and 1 have the highest affinities and 2 the lowest; 4 and 5 were never asked. With
    ε = 0.5 the first choice is 3 in 1/2 + 1/2 · 1/5 of all cases: over 4,000 draws three standard deviations are 93.
    """
    known = {PeerId(1): 0.5, PeerId(2): -0.5, PeerId(3): 2.0}
    greedy, half = stepping(epsilon=0.0), stepping(n_peers=1, epsilon=0.5, epsilon_decay=0.0)
    behaviour(greedy).affinity = known
    behaviour(half).affinity = known
    (request,) = greedy.handle(Wake())
    assert request == Request((PeerId(1), PeerId(3)))
    greedy.plan = spec_of("fedfomo", Settings().replace({**TINY, "n_peers": 3, "epsilon": 0.0})).plan(9, 5, 6)
    thirds = Counter(peer for _ in range(2000) for peer in behaviour(greedy).drawn())
    assert (thirds[PeerId(1)], thirds[PeerId(3)], thirds[PeerId(2)]) == (2000, 2000, 0)
    assert thirds[PeerId(4)] == pytest.approx(1000, abs=68)
    drawn = Counter(behaviour(half).someone() for _ in range(4000))
    assert drawn[PeerId(3)] == pytest.approx(2400, abs=93)
    assert [drawn[PeerId(p)] for p in (1, 2, 4, 5)] == pytest.approx([400] * 4, abs=57)


def test_epsilon_falls_from_round_to_round() -> None:
    it = stepping()
    found = []
    for updates in (0, 1, 5, 6, 7):
        it.updates = updates
        found.append(behaviour(it).epsilon())
    assert found == pytest.approx([0.3, 0.25, 0.05, 0, 0])


def test_one_round_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each peer has trained one epoch: e0, e1, e2, which lie √2 from each other. On peer 0's validation sample they
    lose 2, 1 and 3, so that it takes over e1 and trains it. For peer 1 e2 alone is better than its own, and for peer 2
    none is."""
    losses = [[2.0, 1.0, 3.0], [3.0, 1.0, 0.5], [1.0, 1.0, 0.0]]
    data = federation((0, 0, 0), [[0.0] * 3] * 3, val_losses=losses)
    settings = {"rounds": 1, "n_peers": 2, "tested": "last"}
    (result,), _ = run_by_hand(monkeypatch, data, "fedfomo", settings)
    assert models_of(result) == [[1, 1, 0], [0, 1, 1], [0, 0, 2]]
    assert result.communication.received.tolist() == result.communication.scored.tolist() == [2, 2, 2]
    assert result.communication.merged.tolist() == [1, 1, 0]
    scoring = work_of(result, spec_of("fedfomo", Settings().replace(TINY)), DataSizes(np.full(3, 7), np.full(3, 5)))
    assert scoring is not None
    assert scoring[2] == 2 * 5  # both models of a round on the validation samples


def test_two_clusters_come_to_ask_each_other() -> None:
    """Ten peers in two clusters. At random four models in nine would be of the own cluster."""
    log = Log()
    values = {"peers": 10, "rounds": 40, "n_peers": 2, "patience": 99}
    simulator, _ = fake_simulation(Settings().replace({**TINY, **values}), "fedfomo")
    simulator._trace = log
    run(simulator)
    asked = [
        (peer < 5) == (other < 5)
        for time, peer, _, actions in log.entries
        for action in actions
        if isinstance(action, Request) and time > 10
        for other in action.sources
    ]
    assert len(asked) == 10 * 2 * 30
    assert sum(asked) > 0.8 * len(asked)


def test_what_does_not_fit_is_refused() -> None:
    settings = Settings().replace({"n_peers": 3})
    check_methods(settings, ["fedfomo"], Participants(4, None))
    with pytest.raises(SettingsError, match="n_peers = 3, but each peer can hear at most 2 others: lower it or add"):
        check_methods(settings, ["fedfomo"], Participants(3, None))
    with pytest.raises(SettingsError, match="merge = 'median' knows no weights, but fedfomo says"):
        check_methods(settings.replace({"merge": "median"}), ["fedfomo"], Participants(4, None))
    with pytest.raises(SettingsError, match=r"epsilon = 1\.5"):
        settings.replace({"epsilon": 1.5})
