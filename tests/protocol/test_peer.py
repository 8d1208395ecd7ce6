# SPDX-License-Identifier: Apache-2.0
"""Algorithm 1 and Algorithm 2, played through event by event. No model exists here, only names of models."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens import rng
from pens.protocol.behaviour import Behaviour, waits_for
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import (
    Action,
    Answered,
    Ask,
    Chose,
    Compare,
    Counts,
    Drop,
    Event,
    Finish,
    Losses,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Request,
    Send,
    Start,
    Update,
    Updated,
    Wake,
    WakeAfter,
)
from pens.protocol.peer import Peer
from pens.protocol.plan import Plan, Search
from pens.protocol.policies import SelectionRule, Tally
from pens.settings.schema import Keep
from pens.topologies.views import Others


def plan(pace: str = "push", search: Search | None = None, **values: object) -> Plan:
    defaults: dict[str, object] = {
        "rounds": 3,
        "n_peers": 2,
        "epochs": 3,
        "interval": 2.0,
        "jitter": 0.25,
        "give_up": 100.0,
    }
    return Plan(pace=pace, search=search, **{**defaults, **values})  # type: ignore[arg-type]


def peer(a_plan: Plan, num_peers: int = 8, me: int = 0) -> Peer:
    return Peer(PeerId(me), 1, a_plan, Others(range(num_peers), PeerId(me)))


def model(owner: int, version: int = 1) -> ModelRef:
    return ModelRef(PeerId(owner), version)


def received(owner: int, version: int = 1) -> Received:
    return Received(model(owner, version))


def pulled(request: Request, version: int = 1) -> Pulled:
    return Pulled(tuple(model(source, version) for source in request.sources))


def started(a_plan: Plan) -> Peer:
    it = peer(a_plan)
    assert it.handle(Start()) == [Update((), None, a_plan.epochs, may_stop=False)]
    it.handle(Updated())
    return it


def search(n_sampled: int, m: int, rounds: int, samplings_per_round: int, epochs: int) -> Search:
    """Step 1 at whose end those are found that were selected in more than m of n_sampled comparisons."""
    rule = SelectionRule(m, n_sampled, num_others=7, expected="received")
    return Search(n_sampled, m, rounds, samplings_per_round, epochs, rule)


def found(*peers: int) -> Answered:
    """The counts by which these are found: each of them was compared and selected once, peer 100 was only compared."""
    tally = Tally()
    for other in peers:
        tally.add([PeerId(other), PeerId(100)], [PeerId(other)])
    return Answered("counts", tally)


def chose(*peers: int) -> Chose:
    return Chose(tuple(map(PeerId, peers)), "selection" if peers else "fallback")


def asks(strangers: Sequence[ModelRef], beside: tuple[ModelRef, ...]) -> list[Action]:
    """To judge strangers beside the models that are merged, or beside the own one, when the update is complete."""
    query = Losses(tuple(strangers), beside, on="val", own=not beside)
    return [Ask("strangers", query, when="updated"), *(Drop(stranger, "judged") for stranger in strangers)]


def judged(*losses: float) -> Answered:
    """Losses of strangers, and then those of the models that they are judged beside."""
    return Answered("strangers", losses)


ASKED = Ask("counts", Counts())
SEARCH = search(n_sampled=2, m=1, rounds=2, samplings_per_round=1, epochs=5)


# --- Algorithm 1 ------------------------------------------------------------------------------------------------------


def test_by_the_authors_code_a_peer_exchanges_its_untrained_model_first() -> None:
    """Where a peer does not train first, its first update merges what it pulled, or, alone, is its first training."""
    it = peer(plan("pull", train_first=False))
    assert it.handle(Start()) == []
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    answer = pulled(request, version=0)
    assert it.handle(answer) == [Update(answer.models, None, 3, may_stop=True)]
    searching = peer(plan("pull", SEARCH, train_first=False))
    assert searching.handle(Start()) == []
    assert searching.phase == "searching"
    alone = Peer(PeerId(0), 1, plan("pull", train_first=False), ())
    assert alone.handle(Start()) == []
    assert alone.handle(Wake()) == [Update((), None, 3, may_stop=True)]


def test_a_peer_first_trains_then_waits_a_random_time() -> None:
    it = peer(plan())
    assert it.handle(Start()) == [Update((), None, 3, may_stop=False)]
    (wait,) = it.handle(Updated())
    assert isinstance(wait, WakeAfter)
    assert 0 <= wait.delay <= 2.0


def test_main_sends_to_a_random_peer_and_waits_delta() -> None:
    it = started(plan())
    sent_to = set()
    for _ in range(150):
        send, wait = it.handle(Wake())
        assert isinstance(send, Send)
        assert isinstance(wait, WakeAfter)
        assert 1.5 <= wait.delay <= 2.5
        sent_to.add(send.to)
    assert sent_to == set(range(1, 8))


def test_models_are_merged_when_n_peers_have_come() -> None:
    it = started(plan())
    assert it.handle(received(1)) == []
    assert it.handle(received(2)) == [Update((model(1), model(2)), None, 3, may_stop=True)]


def test_the_newer_model_of_a_sender_replaces_the_older_and_counts_once() -> None:
    it = started(plan())
    assert it.handle(received(1, 1)) == []
    assert it.handle(received(1, 2)) == [Drop(model(1, 1), "replaced")]
    assert it.handle(received(3)) == [Update((model(1, 2), model(3)), None, 3, may_stop=True)]


def test_models_that_come_during_training_are_saved_for_the_next_update() -> None:
    it = started(plan())
    it.handle(received(1))
    it.handle(received(2))
    for sender in (3, 4, 5):
        assert it.handle(received(sender)) == []
    assert it.handle(Updated()) == [Update((model(3), model(4), model(5)), None, 3, may_stop=True)]


def test_a_peer_finishes_after_t_updates_and_goes_on_serving() -> None:
    it = started(plan(rounds=2))
    for last in (False, True):
        it.handle(received(1))
        it.handle(received(2))
        assert it.handle(Updated()) == ([Finish()] if last else [])
    assert it.handle(received(3)) == [Drop(model(3), "unused")]
    assert isinstance(it.handle(Wake())[0], Send)


def test_a_starved_peer_merges_what_it_has_and_with_nothing_trains_on_alone() -> None:
    it = started(plan(rounds=2, n_peers=3, give_up=2.0))
    it.handle(received(4))
    # three different senders of seven take 7/7 + 7/6 + 7/5 = 3.57 waits, twice that is 7.1
    quiet = [it.handle(Wake())[2:] for _ in range(7)]
    assert quiet == [[]] * 7
    assert it.handle(Wake())[2:] == [Update((model(4),), None, 3, may_stop=True)]
    for _ in range(9):
        assert it.handle(Wake())[2:] == []
    assert it.handle(Updated()) == []
    actions = [action for _ in range(8) for action in it.handle(Wake())[2:]]
    assert actions == [Update((), None, 3, may_stop=True)]
    assert it.handle(Updated()) == [Finish()]


def test_step_one_ends_after_a_bounded_number_of_waits() -> None:
    it = started(plan(search=search(n_sampled=2, m=1, rounds=3, samplings_per_round=2, epochs=5), give_up=1.5))
    # two different senders of seven take 7/7 + 7/6 = 2.17 waits, six times that 13, half as much again 19.5
    selecting = [ASKED in it.handle(Wake()) for _ in range(20)]
    assert selecting == [False] * 19 + [True]


def test_local_peers_train_on_without_a_word() -> None:
    it = Peer(PeerId(0), 1, plan(rounds=2), ())
    it.handle(Start())
    assert it.handle(Updated()) == [Update((), None, 3, may_stop=True)]
    assert it.handle(Updated()) == [Update((), None, 3, may_stop=True)]
    assert it.handle(Updated()) == [Finish()]


# --- Algorithm 2 ------------------------------------------------------------------------------------------------------


def test_step_one_compares_n_sampled_models_and_merges_the_top_m() -> None:
    it = started(plan(search=SEARCH))
    assert it.handle(received(4)) == []
    assert it.handle(received(2)) == [Update((model(4), model(2)), 1, 5, may_stop=False)]


def test_exactly_n_sampled_models_are_compared_the_oldest_first() -> None:
    it = started(plan(search=SEARCH))
    it.handle(received(1))
    it.handle(received(2))
    for sender in (5, 3, 4):
        it.handle(received(sender))
    assert it.handle(Updated()) == [Update((model(5), model(3)), 1, 5, may_stop=False)]


def test_several_samplings_per_round_are_counted_and_the_last_is_merged() -> None:
    it = started(plan(search=search(2, 1, rounds=1, samplings_per_round=3, epochs=5)))
    actions: list[Action] = []
    for sender in (1, 2, 3, 4, 5, 6):
        actions += it.handle(received(sender))
    assert actions == [
        Compare((model(1), model(2)), 1),
        Compare((model(3), model(4)), 1),
        Update((model(5), model(6)), 1, 5, may_stop=False),
    ]
    assert it.handle(Updated()) == [ASKED]


def test_progress_counts_samplings_of_step_one_and_updates_of_step_two() -> None:
    it = started(plan(search=search(2, 1, rounds=2, samplings_per_round=2, epochs=5), rounds=7))
    seen = [it.progress]
    for round_ in range(2):
        for sender in (1, 2, 3, 4):
            it.handle(received(sender, round_))
            seen.append(it.progress)
        it.handle(Updated())
        seen.append(it.progress)
    assert seen[:10] == [(n, 4) for n in (0, 0, 1, 1, 2, 2, 2, 3, 3, 4)]
    it.handle(found(2, 6))
    assert it.progress == (0, 7)


def test_step_two_gossips_with_the_selected_only() -> None:
    it = started(plan(search=SEARCH))
    for _ in range(2):
        it.handle(received(1))
        it.handle(received(2))
        last = it.handle(Updated())
    assert last == [ASKED]
    assert it.handle(found(2, 6)) == [chose(2, 6)]
    assert {a.to for _ in range(50) for a in it.handle(Wake()) if isinstance(a, Send)} == {2, 6}
    assert it.handle(received(3)) == [Drop(model(3), "refused")]
    it.handle(received(2))
    assert it.handle(received(6)) == [Update((model(2), model(6)), None, 3, may_stop=True)]


def test_step_two_waits_for_all_neighbours_if_they_are_fewer_than_n_peers() -> None:
    it = started(plan(search=search(2, 1, 1, 1, 5), n_peers=5))
    it.handle(received(1))
    it.handle(received(2))
    it.handle(Updated())
    it.handle(found(4))
    assert it.handle(received(4)) == [Update((model(4),), None, 3, may_stop=True)]


def test_strangers_are_accepted_where_the_plan_says_so() -> None:
    it = started(plan(search=search(2, 1, 1, 1, 5), accept_anyone=True))
    it.handle(received(1))
    it.handle(received(2))
    it.handle(Updated())
    it.handle(found(4, 5))
    assert it.handle(received(7)) == []


def test_models_saved_before_the_selection_are_let_go() -> None:
    it = started(plan(search=search(2, 1, 1, 1, 5)))
    it.handle(received(1))
    it.handle(received(2))
    it.handle(received(3))
    assert it.handle(Updated()) == [Drop(model(3), "unused"), ASKED]
    it.handle(found(3, 4))
    assert it.handle(received(4)) == []  # the model of 3 does not count any more


# --- strangers in step 2, and peers that come and go ------------------------------------------------------------------


def gossiping(**values: float) -> Peer:
    """A peer of step 2 that admits strangers, with neighbours 2 and 6."""
    it = started(plan(search=search(2, 1, 1, 1, 5), admit=True, **{"admission_trials": 1, **values}))  # type: ignore[arg-type]
    it.handle(received(1))
    it.handle(received(2))
    it.handle(Updated())
    assert it.handle(found(2, 6)) == [chose(2, 6)]
    return it


def test_a_stranger_is_answered_kept_and_judged_at_the_next_update() -> None:
    it = gossiping()
    assert it.handle(received(3)) == [Send(PeerId(3), answer=True)]
    assert it.handle(received(3, 2)) == [Send(PeerId(3), answer=True), Drop(model(3), "replaced")]
    it.handle(received(2))
    merged = (model(2), model(6))
    assert it.handle(received(6)) == [*asks([model(3, 2)], merged), Update(merged, None, 3, may_stop=True)]
    assert it.handle(judged(1.0, 1.0, 2.0)) == [Chose((PeerId(2), PeerId(3), PeerId(6)), "admission")]
    assert it.handle(Updated()) == []
    assert it.handle(received(3, 4)) == []
    assert it.handle(received(2)) == [Update((model(3, 4), model(2)), None, 3, may_stop=True)]


def test_an_answer_is_never_answered() -> None:
    it = gossiping()
    assert it.handle(Received(model(3), answer=True)) == []


def test_models_of_strangers_are_bounded() -> None:
    it = gossiping()
    sent = [it.handle(received(sender)) for sender in range(10, 30)]
    assert all(not any(isinstance(a, Drop) for a in actions) for actions in sent[:16])
    assert [actions[1:] for actions in sent[16:]] == [[Drop(model(s), "replaced")] for s in range(10, 14)]


def test_a_finished_peer_answers_strangers_and_keeps_nothing() -> None:
    it = gossiping(rounds=1)
    it.handle(received(2))
    it.handle(received(6))
    assert it.handle(Updated()) == [Finish()]
    assert it.handle(received(3)) == [Send(PeerId(3), answer=True), Drop(model(3), "unused")]
    assert it.handle(received(2, 2)) == [Drop(model(2, 2), "unused")]


def test_without_neighbours_models_nobody_is_judged() -> None:
    it = gossiping(give_up=0.1)
    it.handle(received(3))
    update = next(a for _ in range(9) for a in it.handle(Wake()) if isinstance(a, Update))
    assert update.models == ()
    it.handle(Updated())
    it.handle(received(2))
    assert [type(a) for a in it.handle(received(6))] == [Ask, Drop, Update]


def without_neighbours(**values: float) -> Peer:
    """A peer of step 2 that admits strangers and has no neighbours yet: its step 1 heard nobody."""
    it = started(plan(search=SEARCH, admit=True, admission_trials=1, **{"give_up": 0.1, **values}))  # type: ignore[arg-type]
    while ASKED not in it.handle(Wake()):
        pass
    assert it.handle(found()) == [chose()]
    return it


def test_who_heard_nobody_in_step_one_trains_on_its_own_and_sends_to_everybody() -> None:
    it = without_neighbours(rounds=5, give_up=3.0)
    actions, waits = [], 0
    while it.phase != "finished":
        actions += (now := it.handle(Wake()))
        if any(isinstance(action, Update) for action in now):
            it.handle(Updated())
        waits += 1
        assert waits < 1000
    assert {a.to for a in actions if isinstance(a, Send)} == set(range(1, 8))
    assert [a for a in actions if isinstance(a, Update)] == [Update((), None, 3, may_stop=True)] * 5
    # two senders of seven take 2.17 waits, three times that is 6.5: at the pace of a starved peer with neighbours
    assert waits == 5 * 7


def test_without_neighbours_strangers_are_judged_beside_the_own_model_until_some_are_admitted() -> None:
    it = without_neighbours(rounds=9)
    assert it.handle(received(3)) == [Send(PeerId(3), answer=True)]
    assert it.handle(Wake())[2:] == [*asks([model(3)], ()), Update((), None, 3, may_stop=True)]
    assert it.handle(judged(1.0, 1.0)) == [Chose((PeerId(3),), "admission")]
    assert it.handle(Updated()) == []
    assert it.handle(received(3, 2)) == [Update((model(3, 2),), None, 3, may_stop=True)]
    it.handle(Updated())
    assert {a.to for _ in range(30) for a in it.handle(Wake()) if isinstance(a, Send)} == {3}


def test_who_knows_nobody_after_its_first_training_admits_those_that_come() -> None:
    there: list[PeerId] = []
    it = Peer(PeerId(0), 1, plan(search=SEARCH, admit=True, give_up=1.0), there)
    it.handle(Start())
    (wait,) = it.handle(Updated())
    assert isinstance(wait, WakeAfter)
    assert [type(a) for a in it.handle(Wake())] == [WakeAfter, Update]
    it.handle(Updated())
    there += [PeerId(4)]
    assert it.handle(received(4)) == [Send(PeerId(4), answer=True)]
    assert [type(a) for a in it.handle(Wake())] == [Send, WakeAfter, Ask, Drop, Update]


@pytest.mark.parametrize(("admit", "came", "compared"), [(True, 2, 0), (True, 3, 3), (False, 0, 0), (False, 1, 1)])
def test_step_one_that_ends_too_early_compares_the_few_that_came(admit: bool, came: int, compared: int) -> None:
    """The top 2 of 2 would be no choice; but who admits nobody later takes what there is."""
    it = started(
        plan(search=search(n_sampled=5, m=2, rounds=1, samplings_per_round=2, epochs=5), admit=admit, give_up=1.0)
    )
    for sender in range(1, came + 1):
        it.handle(received(sender))
    actions = next(actions for _ in range(99) if ASKED in (actions := it.handle(Wake())))
    few = tuple(model(sender) for sender in range(1, came + 1))
    assert [a for a in actions if isinstance(a, Compare)] == ([Compare(few, 2)] if compared else [])
    assert [a for a in actions if isinstance(a, Drop)] == ([] if compared else [Drop(ref, "unused") for ref in few])


def test_step_one_that_has_compared_ends_with_what_it_has_counted() -> None:
    it = started(plan(search=search(n_sampled=2, m=1, rounds=1, samplings_per_round=2, epochs=5), give_up=1.0))
    for sender in (1, 2, 3):
        it.handle(received(sender))
    actions = next(actions for _ in range(99) if ASKED in (actions := it.handle(Wake())))
    assert actions[2:] == [Drop(model(3), "unused"), ASKED]


def test_step_one_that_has_merged_ends_with_what_it_has_counted() -> None:
    """The first of two rounds is done, the second has one of the two models that it needs, which is not compared."""
    it = started(plan(search=SEARCH, give_up=1.0))
    it.handle(received(1))
    it.handle(received(2))
    assert it.handle(Updated()) == []
    it.handle(received(3))
    actions = next(actions for _ in range(99) if ASKED in (actions := it.handle(Wake())))
    assert actions[2:] == [Drop(model(3), "unused"), ASKED]


def test_whoever_can_reach_nobody_waits() -> None:
    there: list[PeerId] = [PeerId(1)]
    it = Peer(PeerId(0), 1, plan(search=SEARCH), there)
    it.handle(Start())
    it.handle(Updated())
    there.clear()
    for _ in range(500):
        (wait,) = it.handle(Wake())
        assert isinstance(wait, WakeAfter)
    there += [PeerId(1), PeerId(2), PeerId(3)]
    assert isinstance(it.handle(Wake())[0], Send)


def test_step_one_compares_fewer_models_where_fewer_peers_are_there() -> None:
    there = [PeerId(1), PeerId(2)]
    it = Peer(PeerId(0), 1, plan(search=search(5, 1, rounds=1, samplings_per_round=1, epochs=5)), there)
    it.handle(Start())
    it.handle(Updated())
    assert it.handle(received(1)) == []
    assert it.handle(received(2)) == [Update((model(1), model(2)), 1, 5, may_stop=False)]


def test_a_neighbour_that_is_away_is_not_sent_to_until_it_is_back() -> None:
    there = [PeerId(p) for p in range(1, 8)]
    it = Peer(PeerId(0), 1, plan(search=search(2, 1, 1, 1, 5)), there)
    for event in (Start(), Updated(), received(1), received(2), Updated(), found(2, 6)):
        it.handle(event)

    def sent_to() -> set[int]:
        return {a.to for _ in range(50) for a in it.handle(Wake()) if isinstance(a, Send)}

    assert sent_to() == {2, 6}
    there.remove(PeerId(6))
    assert sent_to() == {2}
    there.remove(PeerId(2))
    assert sent_to() == set()
    there += [PeerId(6)]
    assert sent_to() == {6}


# --- rounds: the same, pulled ----------------------------------------------------------------------------------------


def test_a_round_asks_different_peers_for_their_models() -> None:
    it = started(plan("pull", n_peers=4))
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    assert len(set(request.sources)) == 4
    assert 0 not in request.sources
    actions = it.handle(pulled(request))
    assert actions == [Update(tuple(model(s) for s in request.sources), None, 3, may_stop=True)]


@given(st.integers(1, 7), st.booleans())
def test_an_answer_does_what_its_models_do_one_by_one(count: int, searching: bool) -> None:
    step1 = search(count, 1, rounds=2, samplings_per_round=2, epochs=5) if searching else None
    together, one_by_one = (started(plan("pull", n_peers=count, search=step1)) for _ in range(2))
    (request,) = together.handle(Wake())
    assert one_by_one.handle(Wake()) == [request]
    assert isinstance(request, Request)
    apart = [action for source in request.sources for action in one_by_one.handle(received(source))]
    assert together.handle(pulled(request)) == apart
    assert together.state() == one_by_one.state()


def test_a_round_of_step_one_samples_several_times() -> None:
    it = started(plan("pull", search=search(2, 1, rounds=1, samplings_per_round=2, epochs=5)))
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    score, again = it.handle(pulled(request))
    assert isinstance(score, Compare)
    assert isinstance(again, Request)
    (update,) = it.handle(pulled(again, 9))
    assert isinstance(update, Update)
    assert update.top_m == 1


def in_step_two(pace: str, *neighbours: int, **values: object) -> Peer:
    """A peer of eight that has selected its neighbours."""
    it = started(plan(pace, search=search(2, 1, rounds=1, samplings_per_round=1, epochs=5), **values))
    if pace == "pull":
        (request,) = it.handle(Wake())
        assert isinstance(request, Request)
        it.handle(pulled(request))
    else:
        it.handle(received(1))
        it.handle(received(2))
    assert it.handle(Updated()) == [ASKED]
    assert it.handle(found(*neighbours)) == [chose(*neighbours)]
    return it


def test_in_rounds_step_two_pulls_from_the_neighbours_alone() -> None:
    """Section 4.2: of neighbours 2, 5 and 6, n_peers = 2 each round; each pair comes up, and nobody else."""
    it = in_step_two("pull", 2, 5, 6, rounds=60)
    asked = []
    for _ in range(40):
        (request,) = it.handle(Wake())
        assert isinstance(request, Request)
        asked.append(frozenset(request.sources))
        models = tuple(model(source) for source in request.sources)
        assert it.handle(pulled(request)) == [Update(models, None, 3, may_stop=True)]
        assert it.handle(Updated()) == []
    assert set(asked) == {frozenset({2, 5}), frozenset({2, 6}), frozenset({5, 6})}


def test_in_rounds_step_two_pulls_from_all_neighbours_if_they_are_fewer_than_n_peers() -> None:
    """The threshold is min(n_peers, neighbours)."""
    it = in_step_two("pull", 2, 5, 6, n_peers=4)
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    assert sorted(request.sources) == [2, 5, 6]


def test_in_rounds_step_one_samples_among_everybody() -> None:
    """RANDOMPEER in step 1: n_sampled = 3 of 7 others, each as often as any other but for chance: 600 · 3 / 7 = 257."""
    it = started(plan("pull", search=search(3, 1, rounds=700, samplings_per_round=1, epochs=5)))
    asked: Counter[int] = Counter()
    for _ in range(600):
        (request,) = it.handle(Wake())
        assert isinstance(request, Request)
        assert len(set(request.sources)) == 3
        asked.update(request.sources)
        assert it.handle(pulled(request))[0].models == tuple(model(s) for s in request.sources)  # type: ignore[union-attr]
        it.handle(Updated())
    assert set(asked) == set(range(1, 8))
    assert all(200 < count < 320 for count in asked.values())


def test_a_pushed_model_goes_to_each_reachable_peer_as_often_but_for_chance() -> None:
    it = started(plan())
    sent = Counter(action.to for _ in range(700) for action in it.handle(Wake()) if isinstance(action, Send))
    assert set(sent) == set(range(1, 8))
    assert all(60 < count < 140 for count in sent.values())


@pytest.mark.parametrize("pace", ["push", "pull"])
def test_every_peer_draws_from_a_stream_of_its_own(pace: str) -> None:
    """Peers 100, 101 and 102 may talk to the same fifty others. What they draw depends on seed, peer and draw."""
    others = [PeerId(p) for p in range(50)]

    def drawn(me: int, seed: int) -> list[Action]:
        it = Peer(PeerId(me), seed, plan(pace, n_peers=10), others)
        it.handle(Start())
        it.handle(Updated())
        return it.handle(Wake()) + it.handle(Wake())

    draws = [drawn(me, seed) for me in (100, 101, 102) for seed in (1, 2)]
    assert all(a != b for a, b in combinations(draws, 2))
    assert drawn(100, 1) == draws[0]
    assert draws[0][0] != draws[0][-2 if pace == "push" else -1]
    if pace == "pull":
        places = rng.stream(1, "peer", 100, 1).sample(range(50), 10)
        assert draws[0][0] == Request(tuple(PeerId(p) for p in places))


def test_waits_are_delta_more_or_less() -> None:
    """WAIT(Δ) with Δ = 2 and a jitter of a quarter: from 1.5 to 2.5, and 2 on average. The first one is a random part
    of Δ, so that peers do not beat in time."""
    it = started(plan())
    waits = [action.delay for _ in range(400) for action in it.handle(Wake()) if isinstance(action, WakeAfter)]
    assert 1.5 <= min(waits) < 1.52
    assert 2.48 < max(waits) <= 2.5
    assert sum(waits) / 400 == pytest.approx(2.0, abs=0.05)
    phases = []
    for me in range(200):
        it = Peer(PeerId(me), 1, plan(), Others(range(200), PeerId(me)))
        it.handle(Start())
        (first,) = it.handle(Updated())
        assert isinstance(first, WakeAfter)
        phases.append(first.delay)
    assert min(phases) < 0.05
    assert 1.95 < max(phases) < 2


def test_a_pulling_peer_waits_to_be_woken() -> None:
    it = peer(plan("pull"))
    it.handle(Start())
    assert it.handle(Updated()) == []


def test_in_rounds_who_trains_alone_trains_once_a_round() -> None:
    """`local` in rounds: T = 2 updates, each when the round begins; and nothing once it has finished."""
    it = Peer(PeerId(0), 1, plan("pull", rounds=2), ())
    it.handle(Start())
    assert it.handle(Updated()) == []
    assert it.handle(Wake()) == [Update((), None, 3, may_stop=True)]
    assert it.handle(Updated()) == []
    assert it.handle(Wake()) == [Update((), None, 3, may_stop=True)]
    assert it.handle(Updated()) == [Finish()]
    assert it.handle(Wake()) == []


@pytest.mark.parametrize("pace", ["push", "pull"])
def test_step_one_takes_its_rounds_and_step_two_its_own(pace: str) -> None:
    """T = 4 in step 1 and T = 2 in step 2: the count of updates begins anew, with other epochs."""
    step1 = search(2, 1, rounds=4, samplings_per_round=1, epochs=5)
    it = started(plan(pace, search=step1, rounds=2))

    def update(*senders: int) -> Update:
        if pace == "push":
            (action,) = [a for sender in senders for a in it.handle(received(sender)) if isinstance(a, Update)]
        else:
            (request,) = it.handle(Wake())
            assert isinstance(request, Request)
            (action,) = it.handle(pulled(request))  # type: ignore[assignment]
        assert isinstance(action, Update)
        return action

    for done in range(4):
        action = update(1, 2)
        assert (action.top_m, action.epochs, action.may_stop) == (1, 5, False)
        assert it.handle(Updated()) == ([ASKED] if done == 3 else [])
    it.handle(found(3, 4))
    for done in range(2):
        action = update(3, 4)
        assert {ref.owner for ref in action.models} == {3, 4}
        assert (action.top_m, action.epochs, action.may_stop) == (None, 3, True)
        assert it.handle(Updated()) == ([Finish()] if done == 1 else [])


def test_samplings_are_counted_anew_in_each_round() -> None:
    """Two rounds of two samplings: count, merge, count, merge."""
    it = started(plan(search=search(1, 1, rounds=2, samplings_per_round=2, epochs=5)))
    types = []
    for sender in (1, 2, 3, 4):
        types += [type(action) for action in it.handle(received(sender))]
        if types[-1] is Update:
            last = it.handle(Updated())
    assert types == [Compare, Update, Compare, Update]
    assert last == [ASKED]


def test_comparisons_while_training_wait_for_its_end() -> None:
    """A peer that trains saves what comes: no comparison begins before it is done, then as many as there are models."""
    it = started(plan(search=search(2, 1, rounds=9, samplings_per_round=2, epochs=5)))
    for sender in (1, 2, 3):
        it.handle(received(sender))
    assert isinstance(it.handle(received(4))[0], Update)
    assert [it.handle(received(sender)) for sender in (5, 6, 7, 1, 2)] == [[]] * 5
    score, update = it.handle(Updated())
    assert score == Compare((model(5), model(6)), 1)
    assert update == Update((model(7), model(1)), 1, 5, may_stop=False)


def test_a_newer_model_goes_to_the_end_of_the_queue() -> None:
    it = started(plan(search=search(2, 1, rounds=9, samplings_per_round=1, epochs=5)))
    it.handle(received(1))
    it.handle(received(2))
    for sender in (3, 4, 5):
        it.handle(received(sender))
    assert it.handle(received(3, 2)) == [Drop(model(3, 1), "replaced")]
    assert it.handle(Updated()) == [Update((model(4), model(5)), 1, 5, may_stop=False)]


def test_without_neighbours_a_peer_trains_alone() -> None:
    """Who heard nobody in step 1 has no neighbours: it trains on its own, without a word."""
    it = started(plan(search=search(2, 1, 1, 1, 5), give_up=0.1, rounds=2))
    while ASKED not in it.handle(Wake()):
        pass
    assert it.handle(found()) == [chose(), Update((), None, 3, may_stop=True)]
    assert it.handle(Wake()) == []
    assert it.handle(received(1)) == [Drop(model(1), "unused")]
    assert it.handle(Updated()) == [Update((), None, 3, may_stop=True)]
    assert it.handle(Updated()) == [Finish()]


def test_step_two_may_begin_with_another_model() -> None:
    """Not in the paper: an update that merges nothing, with the model that is kept for it; models that come meanwhile
    are saved for the next. What is kept is said by each update before, the first training included. Who found nobody
    goes on with its newest model."""
    step1 = search(2, 1, rounds=1, samplings_per_round=1, epochs=5)
    for neighbours in ((2, 6), ()):
        it = peer(plan(search=step1, rounds=2, keep="first"))
        assert it.handle(Start()) == [Update((), None, 3, may_stop=False, keep="first")]
        it.handle(Updated())
        it.handle(received(1))
        merged = (model(1), model(2))
        assert it.handle(received(2)) == [Update(merged, 1, 5, may_stop=False, keep="first")]
        it.handle(Updated())
        update = Update((), None, 3, may_stop=True, from_kept=bool(neighbours))
        assert it.handle(found(*neighbours)) == [chose(*neighbours), update]
    it = peer(plan(search=step1, rounds=2, keep="first"))
    for event in (Start(), Updated(), received(1), received(2), Updated()):
        it.handle(event)
    it.handle(found(2, 6))
    assert it.handle(received(2)) == []
    assert it.handle(received(6)) == []
    assert it.handle(Updated()) == [Update((model(2), model(6)), None, 3, may_stop=True)]


@pytest.mark.parametrize("pace", ["push", "pull"])
@pytest.mark.parametrize("keep", ["last", "best"])
def test_between_the_steps_a_peer_may_try_what_it_reaches_alone(pace: str, keep: Keep) -> None:
    """Not in the paper. Two updates apart, which do not count for step 2: the first begins with the untrained model,
    and the one that was kept for step 2 is kept on. Then step 2 begins as ever, with its own T = 2."""
    step1 = replace(search(2, 1, rounds=1, samplings_per_round=1, epochs=5), alone_rounds=2)
    it = peer(plan(pace, search=step1, rounds=2, keep=keep))
    it.handle(Start())
    it.handle(Updated())
    if pace == "push":
        it.handle(received(1))
        it.handle(received(2))
    else:
        (request,) = it.handle(Wake())
        assert isinstance(request, Request)
        it.handle(pulled(request))
    it.handle(Updated())
    back = keep != "last"
    tries = [
        Update((), None, 3, may_stop=False, keep="first" if back else "last", from_first=back and i == 0, apart=True)
        for i in range(2)
    ]

    def began(actions: list[Action]) -> list[Action]:
        """In rounds the next update waits until it is woken."""
        return actions if pace == "push" else [*actions, *it.handle(Wake())]

    first = began(it.handle(found(3, 4)))
    assert first == [chose(3, 4), tries[0]]
    assert (it.phase, it.progress) == ("trying", (0, 2))
    if pace == "push":
        assert it.handle(received(3)) == []  # saved until the trial is over
    assert began(it.handle(Updated())) == [tries[1]]
    goes_back = [Update((), None, 3, may_stop=True, from_kept=True)] if back else []
    leftover = [Drop(model(3), "unused")] if pace == "push" else []
    assert it.handle(Updated()) == [*leftover, *goes_back]
    assert (it.phase, it.progress) == ("gossiping", (0, 2))
    assert set(it.neighbours) == {3, 4}


def test_a_restored_peer_goes_on_with_the_model_that_its_plan_says() -> None:
    """In each phase before step 2 (starting, searching, selecting): what is kept is said by each update anew."""
    step1 = search(2, 1, rounds=1, samplings_per_round=1, epochs=5)
    before, after = plan(search=step1, keep="last"), plan(search=step1, keep="best")
    it = peer(before)
    phases: list[str] = []
    kept: list[tuple[str, str, bool]] = []
    for event in (Start(), Updated(), received(1), received(2), Updated(), found(2, 6)):
        again = peer(after)
        if event != Start():
            again.restore(it.state())
        updates = [action for action in again.handle(event) if isinstance(action, Update)]
        kept += [(phases[-1] if phases else "", update.keep, update.from_kept) for update in updates]
        it.handle(event)
        phases.append(it.phase)
    assert kept == [("", "best", False), ("searching", "best", False), ("selecting", "last", True)]


def test_waits_in_vain_are_counted_from_the_last_update() -> None:
    """give_up = 2 and one of seven senders, for which one wait is usual: two waits in vain are enough. Each update
    begins the count anew, and while a peer trains it does not give up."""
    it = started(plan(n_peers=1, give_up=2.0, rounds=9))
    alone = [Update((), None, 3, may_stop=True)]
    assert [it.handle(Wake())[2:] for _ in range(2)] == [[], alone]
    assert [it.handle(Wake())[2:] for _ in range(5)] == [[]] * 5
    assert it.handle(Updated()) == []
    assert it.handle(received(4)) == [Update((model(4),), None, 3, may_stop=True)]
    assert it.handle(Wake())[2:] == []
    it.handle(Updated())
    assert [it.handle(Wake())[2:] for _ in range(2)] == [[], alone]


def test_waits_in_step_two_are_reckoned_by_the_neighbours() -> None:
    """Two of two neighbours take 2/2 + 2/1 = 3 waits, however many rounds step 1 had; twice that is 6. Two of all seven
    would take 7/7 + 7/6 = 2.17, twice that is 4.33, so that a peer would give up after five waits."""
    it = started(plan(search=search(2, 1, rounds=2, samplings_per_round=3, epochs=5), give_up=2.0, rounds=9))
    while ASKED not in it.handle(Wake()):
        pass
    it.handle(found(2, 6))
    it.handle(received(6))
    assert [it.handle(Wake())[2:] for _ in range(6)] == [[]] * 5 + [[Update((model(6),), None, 3, may_stop=True)]]
    it.handle(Updated())
    assert [it.handle(Wake())[2:] for _ in range(6)] == [[]] * 5 + [[Update((), None, 3, may_stop=True)]]


def test_a_finished_peer_does_nothing_but_send() -> None:
    it = started(plan(n_peers=1, give_up=1.0, rounds=1))
    it.handle(received(4))
    assert it.handle(Updated()) == [Finish()]
    for _ in range(50):
        assert [type(action) for action in it.handle(Wake())] == [Send, WakeAfter]


def test_whom_to_send_to_and_how_long_to_wait_are_the_next_two_numbers_of_the_stream() -> None:
    """Neighbours 2, 5 and 6, of whom 6 is away: whoever draws it draws once more, between 2 and 5."""
    there = [PeerId(p) for p in (1, 2, 3, 4, 5, 7)]
    it = Peer(PeerId(0), 1, plan(search=search(2, 1, 1, 1, 5)), there)
    for event in (Start(), Updated(), received(1), received(2), Updated(), found(2, 5, 6)):
        it.handle(event)
    key, place, second_draws = rng.key(1, "peer", 0), it.state()["draws"], set()
    for _ in range(60):
        whom = (2, 5, 6)[int(rng.number(key, place + 1) * 3)]
        place += 1
        if whom == 6:
            whom = (2, 5)[int(rng.number(key, place + 1) * 2)]
            second_draws.add(whom)
            place += 1
        wait = 2.0 * (1 + 0.25 * (2 * rng.number(key, place + 1) - 1))
        place += 1
        assert it.handle(Wake()) == [Send(PeerId(whom)), WakeAfter(wait)]
    assert second_draws == {2, 5}


def test_in_step_one_models_of_peers_that_cannot_be_reached_count_as_well() -> None:
    """Algorithm 2 takes what comes, whether or not the sender is reachable, and strangers are a matter of step 2."""
    for admit in (True, False):
        it = started(plan(search=SEARCH, admit=admit))
        assert it.handle(received(30)) == []
        assert it.handle(received(31)) == [Update((model(30), model(31)), 1, 5, may_stop=False)]


def test_while_nobody_is_reachable_nothing_is_merged_and_one_model_can_be_compared() -> None:
    there = [PeerId(1)]
    it = Peer(PeerId(0), 1, plan(n_peers=1), there)
    for event in (Start(), Updated(), received(1)):
        it.handle(event)
    there.clear()
    assert it.handle(Updated()) == []
    there += [PeerId(1)]
    it = Peer(PeerId(0), 1, plan(search=search(3, 1, rounds=9, samplings_per_round=1, epochs=5)), there)
    for event in (Start(), Updated(), received(1)):
        it.handle(event)
    assert it.handle(received(30)) == it.handle(received(31)) == []
    assert it.handle(Updated()) == [Update((model(30),), 1, 5, may_stop=False)]
    there.clear()
    assert it.handle(Updated()) == [Update((model(31),), 1, 5, may_stop=False)]


def test_judged_strangers_do_not_begin_step_two_anew() -> None:
    """T = 2 updates, whoever became a neighbour on the way: in the second one, when the first is counted."""
    it = gossiping(rounds=2)
    it.handle(received(2))
    assert [type(action) for action in it.handle(received(6))] == [Update]
    assert it.handle(Updated()) == []
    it.handle(received(3))
    it.handle(received(2))
    assert [type(action) for action in it.handle(received(6))] == [Ask, Drop, Update]
    assert it.handle(judged(1.0, 1.0, 2.0)) == [Chose((PeerId(2), PeerId(3), PeerId(6)), "admission")]
    assert it.handle(Updated()) == [Finish()]


def test_a_stopped_peer_knows_all_of_its_past() -> None:
    """Step 2 with neighbours 2, 5 and 6 and n_peers = 3: models of 5 and 2 are saved, and a stranger's waits."""
    it = in_step_two("push", 2, 5, 6, n_peers=3, admit=True)
    for event in (received(5, 8), received(2, 9), received(7, 4), Wake(), Wake()):
        it.handle(event)
    other = peer(it.plan)
    other.restore(json.loads(json.dumps(it.state())))
    assert other.neighbours == (2, 5, 6)
    assert other.state() == it.state()
    assert other.state()["saved"] == [[5, 8], [2, 9]]
    assert other.state()["behaviour"]["strangers"] == [[7, 4]]
    merged = (model(5, 8), model(2, 9), model(6, 3))
    for one in (it, other):
        assert one.handle(received(6, 3)) == [*asks([model(7, 4)], merged), Update(merged, None, 3, may_stop=True)]
    early = started(plan())
    assert early.state()["neighbours"] is None
    again = peer(early.plan)
    again.restore(early.state())
    assert again.neighbours is again.reachable


def test_the_usual_number_of_waits_by_hand() -> None:
    """Until three of four senders were heard: 4/4 + 4/3 + 4/2 = 4.33; one of one: 1; none: 0."""
    assert waits_for(3, 4) == pytest.approx(1 + 4 / 3 + 2)
    assert waits_for(1, 1) == 1
    assert waits_for(0, 5) == 0


@pytest.mark.parametrize("phase", ["starting", "selecting", "finished"])
def test_who_is_not_gossiping_uses_no_models(phase: str) -> None:
    it = peer(plan(search=search(2, 1, 1, 1, 5), rounds=1))
    it.handle(Start())
    if phase != "starting":
        it.handle(Updated())
        it.handle(received(1))
        it.handle(received(2))
        it.handle(Updated())
    if phase == "finished":
        it.handle(found(3))
        it.handle(received(3))
        assert it.handle(Updated()) == [Finish()]
    assert it.phase == phase
    assert it.handle(received(3)) == [Drop(model(3), "unused")]


class Telling(Gossiping):
    """Says how many updates it has done, and merges the models of those that said most."""

    def note(self) -> object:
        return {"updates": self.peer.updates}

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        said = {ref: self.peer.notes.get(ref.owner, {"updates": 0})["updates"] for ref in models}
        return [self.peer.update((max(models, key=lambda ref: said[ref]),), may_stop=True)]


def test_what_senders_say_beside_their_models_is_known_by_sender() -> None:
    """Peer 1 says 4, peer 2 says 9 and later nothing, which leaves what it said."""
    it = started(plan("pull", behaviours={"gossiping": Telling}, notes=True, rounds=9))
    assert it.note() == {"updates": 0}
    nine, four = {"updates": 9}, {"updates": 4}
    assert it.handle(Pulled((model(1), model(2)), (four, nine))) == [Update((model(2),), None, 3, may_stop=True)]
    it.handle(Updated())
    assert it.note() == {"updates": 1}
    again = peer(it.plan)
    again.restore(json.loads(json.dumps(it.state())))
    assert again.notes == it.notes == {1: four, 2: nine}
    for one in (it, again):
        assert one.handle(Received(model(2, 2))) == []
        assert one.handle(Received(model(1, 2), note={"updates": 12})) == [
            Update((model(1, 2),), None, 3, may_stop=True)
        ]
    silent = started(plan("pull", behaviours={"gossiping": Telling}))
    assert silent.note() is None


class Idle(Behaviour):
    phase = "gossiping"


def test_a_behaviour_that_says_nothing_else_wants_no_model_and_waits() -> None:
    it = started(plan("pull", behaviours={"gossiping": Idle}))
    assert it.handle(received(3)) == [Drop(model(3), "unused")]
    assert it.handle(Pulled((model(1), model(2)))) == [Drop(model(1), "unused"), Drop(model(2), "unused")]
    assert it.handle(Wake()) == it.handle(Updated()) == it.handle(Answered("x", ())) == []
    assert it.progress == (0, 3)


class Few(Gossiping):
    """Asks one peer, whatever it is told to wait for."""

    def drawn(self) -> list[PeerId]:
        return [PeerId(4)]


def test_a_peer_that_asks_fewer_than_it_waits_for_goes_on_with_what_came() -> None:
    """In rounds nothing else will come: a round that ended without an update would never end."""
    it = started(plan("pull", behaviours={"gossiping": Few}, n_peers=3))
    assert it.handle(Wake()) == [Request((PeerId(4),))]
    update = Update((model(4),), None, 3, may_stop=True)
    assert it.handle(Pulled((model(4), model(4)))) == [Drop(model(4), "replaced"), update]
    it.handle(Updated())
    assert it.handle(Pulled(())) == [Update((), None, 3, may_stop=True)]


def test_what_comes_while_a_peer_trains_is_kept_for_its_next_update() -> None:
    """Models of 3 and 1, and a newer one of 3, which takes the place of the older."""
    it = started(plan("pull"))
    it.handle(Pulled((model(1), model(2))))
    assert it.handle(Pulled((model(3), model(1, 2)))) == []
    assert it.handle(Pulled((model(3, 2),))) == [Drop(model(3), "replaced")]
    assert it.handle(Updated()) == [Update((model(1, 2), model(3, 2)), None, 3, may_stop=True)]


def test_step_one_ends_at_the_wait_that_makes_it_too_many() -> None:
    """One of seven senders takes one wait, two rounds of it two; give_up = 1.5 makes three of them."""
    it = started(plan(search=search(n_sampled=1, m=1, rounds=2, samplings_per_round=1, epochs=5), give_up=1.5))
    assert [ASKED in it.handle(Wake()) for _ in range(3)] == [False, False, True]


def test_a_peer_that_trained_alone_says_nothing_when_it_is_done() -> None:
    """A wait may still be in progress when it finishes."""
    it = started(plan(search=search(2, 1, 1, 1, 5), give_up=0.1, rounds=1))
    while ASKED not in it.handle(Wake()):
        pass
    it.handle(found())
    assert it.handle(Updated()) == [Finish()]
    assert it.handle(Wake()) == []


def test_a_finished_peer_does_not_answer_an_answer() -> None:
    it = gossiping(rounds=1)
    it.handle(received(2))
    it.handle(received(6))
    it.handle(Updated())
    assert it.handle(Received(model(3), answer=True)) == [Drop(model(3), "unused")]


def test_strangers_that_nobody_judges_any_more_are_dropped() -> None:
    """Peer 3's model comes while the last update is in progress."""
    it = gossiping(rounds=1)
    it.handle(received(2))
    it.handle(received(6))
    it.handle(received(3))
    assert it.handle(Updated()) == [Drop(model(3), "unused"), Finish()]


def test_a_peer_that_stops_between_question_and_answer_knows_whom_it_asked_about() -> None:
    """Two trials are needed. Stranger 3 loses the first and wins the second, which is half of them; stranger 4 wins the
    first and is not judged again: one trial is not enough."""
    it = gossiping(admission_trials=2, rounds=9)
    for losses, strangers in (((2.0, 0.5, 1.0, 1.0), (3, 4)), ((0.5, 1.0, 1.0), (3,))):
        for sender in (*strangers, 2, 6):
            it.handle(received(sender))
        again = peer(it.plan)
        again.restore(json.loads(json.dumps(it.state())))
        it = again
        told = it.handle(judged(*losses))
        it.handle(Updated())
    assert told == [Chose((PeerId(2), PeerId(3), PeerId(6)), "admission")]


def test_who_admits_nobody_chose_nobody() -> None:
    it = gossiping()
    for sender in (3, 2, 6):
        it.handle(received(sender))
    assert it.handle(judged(2.0, 1.0, 1.0)) == []
    assert it.neighbours == (2, 6)


def test_a_peer_that_stops_within_a_round_of_samplings_goes_on_there() -> None:
    it = started(plan(search=search(2, 1, rounds=2, samplings_per_round=2, epochs=5)))
    it.handle(received(1))
    assert it.handle(received(2)) == [Compare((model(1), model(2)), 1)]
    again = peer(it.plan)
    again.restore(json.loads(json.dumps(it.state())))
    for one in (it, again):
        one.handle(received(3))
        assert one.handle(received(4)) == [Update((model(3), model(4)), 1, 5, may_stop=False)]


# --- properties -------------------------------------------------------------------------------------------------------

events = st.lists(
    st.one_of(st.just(Wake()), st.builds(received, st.integers(1, 7), st.integers(1, 3)), st.just("updated")),
    max_size=60,
)


def play(it: Peer, script: list[object], save_at: int | None, chosen: tuple[int, ...] = (3, 5)) -> list[list[Action]]:
    """Feed a script to a peer; `save_at`: exchange it for one restored from its state on the way. `chosen`: whom it
    selects. The first stranger that is judged always wins, the others never do."""
    log = [it.handle(Start())]
    busy = True
    asked: list[Ask] = []
    for position, step in enumerate(script):
        if position == save_at:
            saved = json.loads(json.dumps(it.state()))
            it = peer(it.plan)
            it.restore(saved)
        event: Event
        if step == "updated":
            if not busy:
                continue
            log += [it.handle(judged(1.0, *[2.0] * 20)) for _ in asked]
            event, busy, asked = Updated(), False, []
        else:
            assert isinstance(step, Wake | Received)
            event = step
        log.append(it.handle(event))
        asked += [a for a in log[-1] if isinstance(a, Ask) and a.when == "updated"]
        if ASKED in log[-1]:
            log.append(it.handle(found(*chosen)))
        busy = busy or any(isinstance(a, Update) for actions in log[-2:] for a in actions)
    return log


selections = st.sampled_from([(3, 5), ()])


@given(events, st.integers(0, 60), st.sampled_from(["push", "pull"]), st.booleans(), selections)
def test_a_restored_peer_decides_as_if_it_had_never_stopped(
    script: list[object], save_at: int, pace: str, searching: bool, chosen: tuple[int, ...]
) -> None:
    a_plan = plan(pace, search=search(2, 1, 2, 2, 5) if searching else None, admit=searching and pace == "push")
    assert play(peer(a_plan), script, None, chosen) == play(peer(a_plan), script, save_at, chosen)


@given(events, st.booleans(), selections, st.sampled_from([0.1, 1.0, 100.0]))
def test_every_model_that_is_kept_is_used_or_dropped_once(
    script: list[object], searching: bool, chosen: tuple[int, ...], give_up: float
) -> None:
    it = peer(plan(search=search(2, 1, 2, 2, 5) if searching else None, admit=searching, give_up=give_up))
    numbered = [
        Received(ModelRef(step.model.owner, number)) if isinstance(step, Received) else step
        for number, step in enumerate(script)
    ]
    log = [action for actions in play(it, numbered, None, chosen) for action in actions]
    released = [a.model for a in log if isinstance(a, Drop)]
    released += [ref for a in log if isinstance(a, Update | Compare) for ref in a.models]
    came = [step.model for step in numbered if isinstance(step, Received)]
    state = it.state()
    kept = [ModelRef(PeerId(o), v) for o, v in (*state["saved"], *state["behaviour"].get("strangers", ()))]
    assert sorted(released + kept, key=repr) == sorted(came, key=repr)


def test_everyone_else_is_a_sequence_of_the_others() -> None:
    others = Others(range(5), PeerId(2))
    assert list(others) == [0, 1, 3, 4]
    assert others[-1] == 4
    assert others[1:3] == [1, 3]
    assert 2 not in others
    assert 3 in others
    assert 5 not in others
