"""Algorithm 1 and Algorithm 2, played through event by event. No model exists here, only names of models."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from pens.messages import (
    Action,
    Drop,
    Event,
    Finish,
    Judge,
    ModelRef,
    PeerId,
    Pulled,
    Received,
    Request,
    Score,
    Select,
    Selected,
    Send,
    Start,
    Update,
    Updated,
    Wake,
    WakeAfter,
)
from pens.peer import Peer, Plan, Search
from pens.topology import Others


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


SEARCH = Search(n_sampled=2, m=1, rounds=2, samplings_per_round=1, epochs=5)


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
    it = started(plan(search=Search(n_sampled=2, m=1, rounds=3, samplings_per_round=2, epochs=5), give_up=1.5))
    # two different senders of seven take 7/7 + 7/6 = 2.17 waits, six times that 13, half as much again 19.5
    selecting = [Select() in it.handle(Wake()) for _ in range(20)]
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
    it = started(plan(search=Search(2, 1, rounds=1, samplings_per_round=3, epochs=5)))
    actions: list[Action] = []
    for sender in (1, 2, 3, 4, 5, 6):
        actions += it.handle(received(sender))
    assert actions == [
        Score((model(1), model(2)), 1),
        Score((model(3), model(4)), 1),
        Update((model(5), model(6)), 1, 5, may_stop=False),
    ]
    assert it.handle(Updated()) == [Select()]


def test_step_two_gossips_with_the_selected_only() -> None:
    it = started(plan(search=SEARCH))
    for _ in range(2):
        it.handle(received(1))
        it.handle(received(2))
        last = it.handle(Updated())
    assert last == [Select()]
    assert it.handle(Selected((PeerId(2), PeerId(6)))) == []
    assert {a.to for _ in range(50) for a in it.handle(Wake()) if isinstance(a, Send)} == {2, 6}
    assert it.handle(received(3)) == [Drop(model(3), "refused")]
    it.handle(received(2))
    assert it.handle(received(6)) == [Update((model(2), model(6)), None, 3, may_stop=True)]


def test_step_two_waits_for_all_neighbours_if_they_are_fewer_than_n_peers() -> None:
    it = started(plan(search=Search(2, 1, 1, 1, 5), n_peers=5))
    it.handle(received(1))
    it.handle(received(2))
    it.handle(Updated())
    it.handle(Selected((PeerId(4),)))
    assert it.handle(received(4)) == [Update((model(4),), None, 3, may_stop=True)]


def test_strangers_are_accepted_where_the_plan_says_so() -> None:
    it = started(plan(search=Search(2, 1, 1, 1, 5), accept_anyone=True))
    it.handle(received(1))
    it.handle(received(2))
    it.handle(Updated())
    it.handle(Selected((PeerId(4), PeerId(5))))
    assert it.handle(received(7)) == []


def test_models_saved_before_the_selection_are_let_go() -> None:
    it = started(plan(search=Search(2, 1, 1, 1, 5)))
    it.handle(received(1))
    it.handle(received(2))
    it.handle(received(3))
    assert it.handle(Updated()) == [Drop(model(3), "unused"), Select()]


# --- strangers in step 2, and peers that come and go ------------------------------------------------------------------


def gossiping(**values: float) -> Peer:
    """A peer of step 2 that admits strangers, with neighbours 2 and 6."""
    it = started(plan(search=Search(2, 1, 1, 1, 5), admit=True, **values))  # type: ignore[arg-type]
    it.handle(received(1))
    it.handle(received(2))
    it.handle(Updated())
    it.handle(Selected((PeerId(2), PeerId(6))))
    return it


def test_a_stranger_is_answered_kept_and_judged_at_the_next_update() -> None:
    it = gossiping()
    assert it.handle(received(3)) == [Send(PeerId(3), answer=True)]
    assert it.handle(received(3, 2)) == [Send(PeerId(3), answer=True), Drop(model(3), "replaced")]
    it.handle(received(2))
    merged = (model(2), model(6))
    assert it.handle(received(6)) == [Judge((model(3, 2),), merged), Update(merged, None, 3, may_stop=True)]
    assert it.handle(Selected((PeerId(2), PeerId(3), PeerId(6)))) == []
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
    assert [type(a) for a in it.handle(received(6))] == [Judge, Update]


def test_who_found_nobody_searches_again_where_others_may_come() -> None:
    it = started(plan(search=SEARCH, admit=True, give_up=0.1))
    while Select() not in it.handle(Wake()):
        pass
    assert it.handle(Selected(())) == []
    assert it.phase == "searching"
    assert isinstance(it.handle(Wake())[0], Send)


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
    it = Peer(PeerId(0), 1, plan(search=Search(5, 1, rounds=1, samplings_per_round=1, epochs=5)), there)
    it.handle(Start())
    it.handle(Updated())
    assert it.handle(received(1)) == []
    assert it.handle(received(2)) == [Update((model(1), model(2)), 1, 5, may_stop=False)]


def test_a_neighbour_that_is_away_is_not_sent_to_until_it_is_back() -> None:
    there = [PeerId(p) for p in range(1, 8)]
    it = Peer(PeerId(0), 1, plan(search=Search(2, 1, 1, 1, 5)), there)
    for event in (Start(), Updated(), received(1), received(2), Updated(), Selected((PeerId(2), PeerId(6)))):
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
    search = Search(count, 1, rounds=2, samplings_per_round=2, epochs=5) if searching else None
    together, one_by_one = (started(plan("pull", n_peers=count, search=search)) for _ in range(2))
    (request,) = together.handle(Wake())
    assert one_by_one.handle(Wake()) == [request]
    assert isinstance(request, Request)
    apart = [action for source in request.sources for action in one_by_one.handle(received(source))]
    assert together.handle(pulled(request)) == apart
    assert together.state() == one_by_one.state()


def test_a_round_of_step_one_samples_several_times() -> None:
    it = started(plan("pull", search=Search(2, 1, rounds=1, samplings_per_round=2, epochs=5)))
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    score, again = it.handle(pulled(request))
    assert isinstance(score, Score)
    assert isinstance(again, Request)
    (update,) = it.handle(pulled(again, 9))
    assert isinstance(update, Update)
    assert update.top_m == 1


# --- properties -------------------------------------------------------------------------------------------------------

events = st.lists(
    st.one_of(st.just(Wake()), st.builds(received, st.integers(1, 7), st.integers(1, 3)), st.just("updated")),
    max_size=60,
)


def play(it: Peer, script: list[object], save_at: int | None) -> list[list[Action]]:
    """Feed a script to a peer; `save_at`: exchange it for one restored from its state on the way."""
    log = [it.handle(Start())]
    busy, selecting = True, False
    for position, step in enumerate(script):
        if position == save_at:
            saved = json.loads(json.dumps(it.state()))
            it = peer(it.plan)
            it.restore(saved)
        event: Event
        if step == "updated":
            if not busy:
                continue
            event, busy = Updated(), False
        else:
            assert isinstance(step, Wake | Received)
            event = step
        log.append(it.handle(event))
        selecting = any(isinstance(a, Select) for a in log[-1])
        if selecting:
            log.append(it.handle(Selected((PeerId(3), PeerId(5)))))
        busy = busy or any(isinstance(a, Update) for actions in log[-2:] for a in actions)
    return log


@given(events, st.integers(0, 60), st.sampled_from(["push", "pull"]), st.booleans())
def test_a_restored_peer_decides_as_if_it_had_never_stopped(
    script: list[object], save_at: int, pace: str, searching: bool
) -> None:
    a_plan = plan(pace, search=Search(2, 1, 2, 2, 5) if searching else None, admit=searching)
    assert play(peer(a_plan), script, None) == play(peer(a_plan), script, save_at)


@given(events, st.booleans())
def test_every_model_that_is_kept_is_used_or_dropped_once(script: list[object], searching: bool) -> None:
    it = peer(plan(search=Search(2, 1, 2, 2, 5) if searching else None, admit=searching))
    numbered = [
        Received(ModelRef(step.model.owner, number)) if isinstance(step, Received) else step
        for number, step in enumerate(script)
    ]
    log = [action for actions in play(it, numbered, None) for action in actions]
    released = [a.model for a in log if isinstance(a, Drop)]
    released += [ref for a in log if isinstance(a, Update | Score) for ref in a.models]
    released += [ref for a in log if isinstance(a, Judge) for ref in a.strangers]
    came = [step.model for step in numbered if isinstance(step, Received)]
    kept = [ModelRef(PeerId(o), v) for place in ("buffer", "strangers") for o, v in it.state()[place]]
    assert sorted(released + kept, key=repr) == sorted(came, key=repr)


def test_everyone_else_is_a_sequence_of_the_others() -> None:
    others = Others(range(5), PeerId(2))
    assert list(others) == [0, 1, 3, 4]
    assert others[-1] == 4
    assert others[1:3] == [1, 3]
    assert 2 not in others
    assert 3 in others
    assert 5 not in others
