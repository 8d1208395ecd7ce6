# SPDX-License-Identifier: Apache-2.0
"""DAC: similarities, two hops and draws, worked out by hand."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest

from pens.errors import SettingsError
from pens.methods.dac import Asking, DacSettings
from pens.methods.dac_var import growing
from pens.methods.method import Participants
from pens.methods.names import check_methods
from pens.protocol.messages import (
    Answered,
    Ask,
    Losses,
    ModelRef,
    PeerId,
    Pulled,
    Request,
    Start,
    Update,
    Updated,
    Wake,
)
from pens.protocol.peer import Peer
from pens.protocol.plan import Plan
from pens.settings.tree import Settings
from pens.topologies.views import Others
from tests.conftest import TINY
from tests.fakes import fake_simulation
from tests.methods.specs import spec_of
from tests.simulations import run


def asking(tau: float = 30.0, n_peers: int = 2, num_peers: int = 6, seed: int = 1) -> Peer:
    plan = Plan(
        pace="pull",
        rounds=9,
        n_peers=n_peers,
        epochs=3,
        search=None,
        notes=True,
        own=DacSettings(tau=tau),
        behaviours={"gossiping": Asking},
    )
    it = Peer(PeerId(0), seed, plan, Others(range(num_peers), PeerId(0)))
    it.handle(Start())
    it.handle(Updated())
    return it


def behaviour(it: Peer) -> Asking:
    assert isinstance(it.behaviour, Asking)
    return it.behaviour


def models(*owners: int) -> tuple[ModelRef, ...]:
    return tuple(ModelRef(PeerId(owner), 1) for owner in owners)


def test_a_round_asks_for_losses_and_merges_all_that_were_drawn() -> None:
    it = asking()
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    assert len(set(request.sources)) == 2
    came = models(*request.sources)
    assert it.handle(Pulled(came)) == [
        Ask("losses", Losses(came), when="updated"),
        Update(came, None, 3, may_stop=True),
    ]


def test_similarity_is_one_over_loss_and_two_hops_tell_of_the_rest() -> None:
    """Losses of 0.5 and 4 make similarities of 2 and 0.25, so that peer 1 is the most similar: what it says of 3 and 4
    counts, not what it says of 2, which is known better, of 0, which is the peer itself, nor what peer 2 says of 5."""
    it = asking()
    said = ([[3, 1.5], [2, 9.0], [0, 7.0], [4, 0.75]], [[5, 3.0]])
    it.handle(Pulled(models(1, 2), tuple(said)))
    assert it.handle(Answered("losses", (0.5, 4.0))) == []
    assert behaviour(it).known == {1: 2.0, 2: 0.25}
    assert behaviour(it).heard == {3: 1.5, 4: 0.75}
    assert [behaviour(it).similarity(PeerId(p)) for p in range(1, 6)] == [2.0, 0.25, 1.5, 0.75, 0.0]
    assert it.note() == [[1, 2.0], [2, 0.25]]
    behaviour(it).known[PeerId(5)] = 1 / 3
    assert it.note() == [[1, 2.0], [5, 0.333333], [2, 0.25]]
    it.handle(Updated())
    again = Peer(PeerId(0), 1, it.plan, it.reachable)
    again.restore(json.loads(json.dumps(it.state())))
    assert vars(behaviour(again)).keys() == vars(behaviour(it)).keys()
    assert again.state() == it.state()
    assert again.notes == it.notes == {1: said[0], 2: said[1]}
    assert again.handle(Wake()) == it.handle(Wake())


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_no_similarity(loss: float) -> None:
    it = asking()
    it.handle(Pulled(models(1, 2)))
    it.handle(Answered("losses", (loss, 0.0)))
    assert behaviour(it).known == {1: 0.0, 2: 1000.0}


@pytest.mark.parametrize(
    "note",
    [
        3,
        "x",
        {"1": 2},
        [[3]],
        [[3, "a"]],
        [[True, 1.0]],
        [[3, -1.0]],
        [[3, math.nan]],
        [None],
        [["a", 1.0]],
        [[3.5, 1.0]],
    ],
)
def test_what_makes_no_sense_is_not_believed(note: object) -> None:
    it = asking()
    it.handle(Pulled(models(1, 2), (note, note)))
    it.handle(Answered("losses", (1.0, 1.0)))
    assert behaviour(it).heard == {}


def test_what_an_acquaintance_says_counts_for_no_more_than_what_could_be_measured() -> None:
    it = asking()
    it.handle(Pulled(models(1, 2), ([[3, 5000.0]], None)))
    it.handle(Answered("losses", (1.0, 2.0)))
    assert behaviour(it).heard == {3: 1000.0}


def test_those_that_are_drawn_are_asked_in_ascending_order() -> None:
    it = asking(n_peers=4, num_peers=9)
    for _ in range(9):
        assert (drawn := list(behaviour(it).drawn())) == sorted(set(drawn))
        assert len(drawn) == 4


def test_no_more_peers_are_asked_than_there_are() -> None:
    settings = Settings().replace({"n_peers": 3})
    check_methods(settings, ["dac"], Participants(4, None))
    with pytest.raises(SettingsError, match="n_peers = 3, but each peer can hear at most 2 others: lower it or add"):
        check_methods(settings, ["dac"], Participants(3, None))


def test_peers_are_drawn_with_a_probability_proportional_to_exp_tau_s() -> None:
    """Similarities of ln 1, ln 2 and ln 5 with τ = 1: one of three is drawn in 1, 2 and 5 of 8 cases. Over 4,000 draws
    three standard deviations are at most 95."""
    it = asking(tau=1.0, n_peers=1, num_peers=4)
    behaviour(it).known = {PeerId(1): 0.0, PeerId(2): math.log(2), PeerId(3): math.log(5)}
    drawn = Counter(behaviour(it).drawn()[0] for _ in range(4000))
    assert [drawn[PeerId(p)] for p in (1, 2, 3)] == pytest.approx([500, 1000, 2500], abs=95)


def test_without_tau_every_peer_is_drawn_as_often_as_any_other() -> None:
    it = asking(tau=0.0, n_peers=2, num_peers=5)
    behaviour(it).known = {PeerId(1): 1000.0}
    drawn = Counter(peer for _ in range(2000) for peer in behaviour(it).drawn())
    assert [drawn[PeerId(p)] for p in (1, 2, 3, 4)] == pytest.approx([1000] * 4, abs=95)


@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_two_clusters_come_to_ask_each_other(schedule: str) -> None:
    """Ten peers in two clusters; a model of the own cluster has a loss of at most 0.5, another's of at least 1. At
    random four models in nine would be of the own cluster. Each model that is merged was scored."""
    values = {"peers": 10, "rounds": 40, "n_peers": 2, "patience": 99, "schedule": schedule}
    simulator, _ = fake_simulation(Settings().replace({**TINY, **values}), "dac")
    run(simulator)
    merges = {peer: learner.merges for peer, learner in simulator.learners.by_peer.items()}
    own = sum(count for me, of in merges.items() for peer, count in of.items() if (me < 5) == (peer < 5))
    assert own > 0.8 * sum(of.total() for of in merges.values())
    if schedule == "rounds":
        assert simulator.asked() == [of.total() for of in merges.values()] == [80] * 10
    assert not simulator.neighbours()


@pytest.mark.parametrize(("updates", "tau"), [(0, 1.0), (1, 1.0), (6, 14.8635), (11, 23.8478), (500, 31.0)])
def test_the_preference_of_dac_var_grows_with_the_rounds(updates: int, tau: float) -> None:
    """τ_t = 60 / (1 + exp(−t / 5)) − 29, where t counts the rounds after the second draw: t = 5 gives
    60 / 1.36788 − 29, and t = 10 gives 60 / 1.13534 − 29. Of peers that differ by ln 2 / τ in similarity, one is drawn
    twice as often as the other."""
    plan = spec_of("dac-var", Settings().replace({**TINY, "n_peers": 1})).plan(9, 5, 3)
    it = Peer(PeerId(0), 1, plan, Others(range(3), PeerId(0)))
    it.handle(Start())
    it.handle(Updated())
    it.updates = updates
    assert behaviour(it).tau() == pytest.approx(tau, abs=1e-4)
    behaviour(it).known = {PeerId(1): math.log(2) / tau, PeerId(2): 0.0}
    drawn = Counter(behaviour(it).drawn()[0] for _ in range(3000))
    assert drawn[PeerId(1)] == pytest.approx(2000, abs=78)


def test_dac_var_without_growth_stays_at_one() -> None:
    assert [growing(30.0, 0.0, t) for t in (0, 9)] == [1.0, 1.0]
