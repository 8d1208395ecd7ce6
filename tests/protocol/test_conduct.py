# SPDX-License-Identifier: Apache-2.0
"""Whose models hurt, when a peer drops another, and what it does then; worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from pens.protocol.conduct import Conduct, ConductRules, Verdict, has_fallen, is_clearly_worse
from pens.protocol.messages import (
    Answered,
    Ask,
    Chose,
    Drop,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Request,
    Shun,
    Start,
    Update,
    Updated,
    Verdicts,
    Wake,
)
from pens.protocol.peer import CONDUCT, Peer
from pens.protocol.plan import Plan, Search
from pens.protocol.policies import SelectionRule, Tally

RULES = ConductRules(strikes=2, merges=3)
PLAN = Plan("pull", rounds=9, n_peers=2, epochs=1, search=None, train_first=False, trust=RULES)


def ids(*numbers: int) -> tuple[PeerId, ...]:
    return tuple(map(PeerId, numbers))


def model(owner: int, version: int = 1) -> ModelRef:
    return ModelRef(PeerId(owner), version)


@pytest.mark.parametrize(
    ("losses", "worse"),
    [
        # differences 0, 4: mean 2, deviation √8, standard error 2; the line is at 2 × 2
        ([1.0, 5.0], False),
        # differences 3, 5: mean 4, deviation √2, standard error 1; the line is at 2
        ([4.0, 6.0], True),
        ([1.5, 1.5], True),  # 0.5 and 0.5: no doubt at all
        ([1.0, 1.0], False),
        ([0.0, 0.0], False),
        ([math.nan, 0.0], True),
        ([math.inf, 0.0], True),
    ],
)
def test_clearly_worse_is_by_standard_errors_of_the_mean_difference(losses: list[float], worse: bool) -> None:
    assert is_clearly_worse(losses, [1.0, 1.0], margin=2.0) == worse


def test_of_one_sample_and_beside_an_own_model_without_numbers_nobody_can_tell() -> None:
    assert not is_clearly_worse([9.0], [1.0], 2.0)
    assert not is_clearly_worse([9.0, 9.0], [math.nan, 1.0], 2.0)
    assert not is_clearly_worse([], [], 2.0)


def test_the_margin_counts() -> None:
    """Mean 4, standard error 1."""
    assert is_clearly_worse([4.0, 6.0], [1.0, 1.0], 3.9)
    assert not is_clearly_worse([4.0, 6.0], [1.0, 1.0], 4.1)


def test_who_has_fallen() -> None:
    """Two bad models, and more than half of the latest."""
    assert not has_fallen([True], 2)
    assert has_fallen([True, True], 2)
    assert has_fallen([True, False, True], 2)
    assert not has_fallen([True, False, True, False], 2)


def test_a_peer_is_dropped_for_a_while_and_then_for_longer() -> None:
    """After merges 1 and 2; nothing of it is taken during three merges, the next time during six."""
    conduct, bad = Conduct(), [(PeerId(7), "hurts"), (PeerId(8), "good")]
    assert conduct.judge(bad, RULES) == ()  # type: ignore[arg-type]
    assert conduct.judge(bad, RULES) == ids(7)  # type: ignore[arg-type]
    told = []
    for _ in range(4):
        told.append(conduct.is_dropped(PeerId(7)))
        assert conduct.judge([], RULES) == ()
    assert told == [True, True, True, False]
    assert not conduct.is_dropped(PeerId(8))
    for verdict in ("echo", "absurd"):
        conduct.judge([(PeerId(7), verdict)], RULES)
    assert conduct.until[PeerId(7)] - conduct.done == 6


def test_only_the_latest_models_count_and_nobody_is_blamed_for_twins() -> None:
    """Of four at most: good, good, good, bad, bad, bad."""
    conduct = Conduct()
    for verdict in ("good", "good", "good", "hurts", "hurts", "twin", "twin"):
        assert conduct.judge([(PeerId(7), verdict)], RULES) == ()
    assert conduct.judge([(PeerId(7), "hurts")], RULES) == ids(7)


def test_what_is_remembered_comes_back() -> None:
    conduct = Conduct()
    for verdict in ("hurts", "hurts", "hurts"):
        conduct.judge([(PeerId(7), verdict), (PeerId(2), "good")], RULES)
    again = Conduct.restored(json.loads(json.dumps(conduct.state())))
    assert again == conduct
    assert again.until
    assert again.latest


def merging(plan: Plan, verdicts: list[tuple[int, Verdict]]) -> tuple[Peer, list[object]]:
    """A peer that can reach 1, 2 and 3, after a merge; and what it wants when it was told how the models did."""
    peer = Peer(PeerId(0), 0, plan, ids(1, 2, 3))
    peer.handle(Start())
    (request,) = peer.handle(Wake())
    assert isinstance(request, Request)
    ask, update = peer.handle(Pulled(tuple(model(of) for of in request.sources)))
    assert ask == Ask(CONDUCT, Verdicts(), when="updated")
    assert isinstance(update, Update)
    found: list[object] = [*peer.handle(Answered(CONDUCT, tuple(verdicts)))]
    return peer, found


def test_nobody_asks_how_models_did_of_an_update_that_merges_none() -> None:
    """Neither of the first training, nor where the others sent nothing: such updates are no merges, and no dropped
    peer's time passes."""
    peer = Peer(PeerId(0), 0, replace(PLAN, train_first=True), ids(1, 2, 3))
    (first,) = peer.handle(Start())
    assert isinstance(first, Update)
    peer.handle(Updated())
    peer.handle(Wake())
    (later,) = peer.handle(Pulled(()))
    assert isinstance(later, Update)
    assert (first.models, later.models, peer.conduct.done) == ((), (), 0)


def test_nothing_of_a_dropped_peer_is_requested_or_taken() -> None:
    peer, actions = merging(replace(PLAN, n_peers=3, trust=ConductRules(1, 9)), [(2, "hurts")])
    assert actions == [Shun(ids(2))]
    assert peer.neighbours is peer.reachable
    peer.handle(Updated())
    (request,) = peer.handle(Wake())
    assert isinstance(request, Request)
    assert sorted(request.sources) == [1, 3]
    assert peer.handle(Received(model(2))) == [Drop(model(2), "refused")]


def test_a_neighbour_that_is_dropped_is_one_no_more_and_the_last_one_too() -> None:
    """Whoever has no neighbours left trains alone, and goes on."""
    peer = Peer(PeerId(0), 0, replace(PLAN, pace="push", n_peers=1, trust=ConductRules(1, 9)), ids(1, 2, 3))
    peer.handle(Start())
    peer.neighbours = ids(1, 2)
    peer.handle(Received(model(1)))
    assert peer.handle(Answered(CONDUCT, ((PeerId(1), "echo"),))) == [Shun(ids(1)), Chose(ids(2), "distrust")]
    assert peer.handle(Answered(CONDUCT, ((PeerId(2), "absurd"),))) == [Shun(ids(2)), Chose((), "distrust")]
    peer.handle(Updated())
    wanted = [action for _ in range(20) for action in peer.handle(Wake())]
    assert any(isinstance(action, Update) and not action.models for action in wanted)


def test_step_one_does_not_choose_whom_the_peer_dropped() -> None:
    rule = SelectionRule(1, 2, 3, "uniform")
    search = Search(n_sampled=2, m=1, rounds=1, samplings_per_round=1, epochs=1, rule=rule)
    peer = Peer(PeerId(0), 0, replace(PLAN, search=search, trust=ConductRules(1, 9)), ids(1, 2, 3))
    peer.handle(Start())
    peer.handle(Wake())
    peer.handle(Pulled((model(1), model(2))))
    peer.handle(Answered(CONDUCT, ((PeerId(1), "echo"),)))
    peer.handle(Updated())
    tally = Tally()
    tally.add(ids(1, 2), ids(1, 2))
    assert peer.handle(Answered("counts", tally))[0] == Chose(ids(2), "selection")


def test_who_was_admitted_and_dropped_begins_anew() -> None:
    """Stranger 3 won its trials, becomes a neighbour, and is dropped: nothing that it won counts any more."""
    plan = replace(PLAN, pace="push", n_peers=1, admit=True, admission_trials=1, trust=ConductRules(1, 1))
    peer = Peer(PeerId(0), 0, plan, ids(1, 2, 3))
    peer.handle(Start())
    peer.neighbours = ids(1)
    peer.handle(Received(model(3)))
    peer.handle(Received(model(1)))
    assert peer.handle(Answered("strangers", (0.1, 0.2))) == [Chose(ids(1, 3), "admission")]
    peer.handle(Updated())
    assert peer.handle(Answered(CONDUCT, ((PeerId(3), "hurts"),)))[:2] == [Shun(ids(3)), Chose(ids(1), "distrust")]
    peer.handle(Received(model(2)))
    peer.handle(Received(model(1, 2)))
    assert peer.handle(Answered("strangers", (0.9, 0.2))) == []
    assert peer.neighbours == ids(1)


def test_a_peer_that_trusts_asks_nothing_and_keeps_nothing() -> None:
    peer = Peer(PeerId(0), 0, replace(PLAN, trust=None), ids(1, 2, 3))
    peer.handle(Start())
    peer.handle(Wake())
    (update,) = peer.handle(Pulled((model(1), model(2))))
    assert isinstance(update, Update)
    assert "conduct" not in peer.state()


def test_a_state_brings_back_who_is_dropped() -> None:
    peer, _ = merging(replace(PLAN, trust=ConductRules(1, 9)), [(2, "hurts")])
    again = Peer(PeerId(0), 0, PLAN, ids(1, 2, 3))
    again.restore(json.loads(json.dumps(peer.state())))
    assert again.handle(Received(model(2, 5))) == [Drop(model(2, 5), "refused")]
