# SPDX-License-Identifier: Apache-2.0
"""FACADE: one core and k heads, worked out by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pens.errors import SettingsError
from pens.methods.facade import Choosing, FacadeSettings, lowest
from pens.methods.names import check_methods, participants
from pens.protocol.messages import (
    Action,
    Answered,
    Ask,
    Blend,
    Drop,
    Finish,
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
from pens.settings.tree import Settings
from pens.topologies.views import Others
from tests.byhand import federation, run_by_hand
from tests.conftest import TINY
from tests.methods.parts import PartsEngine, bodies, heads
from tests.methods.specs import spec_of
from tests.simulations import run, simulation

ME = PeerId(0)


def one(heads: int = 2, rounds: int = 9, **values: object) -> Peer:
    """Peer 0 of six, before its first training."""
    own = {f"facade.{name}": value for name, value in values.items()}
    settings = Settings().replace(
        {**TINY, "n_peers": 3, "rounds": rounds, "facade.heads": heads, "facade.share_all": 0, **own}
    )
    plan = spec_of("facade", settings).plan(9, 5, 6)
    return Peer(ME, 1, plan, Others(range(6), ME))


def trained(it: Peer, losses: Sequence[float]) -> Peer:
    """After the first training, with the head of the lowest of these losses."""
    it.handle(Start())
    it.handle(Answered("losses", tuple(losses)))
    it.handle(Updated())
    return it


def made(number: int) -> ModelRef:
    return ModelRef(ME, -number)


def came(*owners: int) -> tuple[ModelRef, ...]:
    return tuple(ModelRef(PeerId(owner), 1) for owner in owners)


def blends(actions: Sequence[Action]) -> list[Blend]:
    return [action for action in actions if isinstance(action, Blend)]


def test_the_first_training_is_from_the_untrained_head_that_fits_best() -> None:
    """Head 0 is that of the own model; 1 and 2 are those of untrained networks, on the own core. Head 1 is chosen."""
    it = one(heads=3)
    *first, ask = it.handle(Start())
    assert first == [
        Blend(made(1), (), (1.0,)),
        Blend(made(2), (), (1.0, 0.0), (("auto", (0.0, 1.0)),), ("head", 1, 0)),
        Blend(made(3), (), (1.0, 0.0), (("auto", (0.0, 1.0)),), ("head", 2, 0)),
    ]
    assert ask == Ask("losses", Losses((made(1), made(2), made(3))))
    assert it.handle(Answered("losses", (2.5, 2.25, math.nan))) == [
        Update((made(2),), None, 2, may_stop=False, weights=(0.0, 1.0))
    ]
    assert it.made == {"0": made(1), "2": made(3)}
    it.handle(Updated())
    assert (it.phase, it.note()) == ("gossiping", 1)


def test_heads_are_alike_for_all_peers_where_first_models_are() -> None:
    it = one()
    it.plan = replace(it.plan, own=replace(it.plan.own, common=True))
    assert blends(it.handle(Start()))[1].untrained == ("head", 1)


@pytest.mark.parametrize("own_heads", [True, False])
def test_cores_of_all_and_heads_of_those_who_chose_the_same_are_averaged(own_heads: bool) -> None:
    """The peer has chosen head 1 of three, and hears peers 2 with head 1, 3 with head 2, and 4 that says nonsense.

    cores: four of them, its own and three, with 1/4 each
    head 1, which its own model has: its own and that of peer 2, with 1/2 each
    head 2: that of peer 3; with `own_heads` also its own head 2, with 1/2 each
    head 0: nobody sent one, so that its own head 0 stays
    """
    it = trained(one(heads=3, own_heads=own_heads), (1.0, 0.5, 2.0))
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    assert len(request.sources) == 3
    models = came(2, 3, 4)
    zero, one_, two = actions = blends(all_ := it.handle(Pulled(models, (1, 2, "one"))))
    quarters = (0.25,) * 4
    assert zero == Blend(made(4), (*models, made(1)), (*quarters, 0.0), (("auto", (0, 0, 0, 0, 1)),))
    assert one_ == Blend(made(5), models, quarters, (("auto", (0.5, 0.5, 0, 0)),))
    halves = (0, 0, 0.5, 0, 0.5) if own_heads else (0, 0, 1, 0, 0)
    assert two == Blend(made(6), (*models, made(3)), (*quarters, 0.0), (("auto", halves),))
    assert [action for action in all_ if action not in actions] == [
        Drop(made(1), "replaced"),
        Drop(made(3), "replaced"),
        Ask("losses", Losses((made(4), made(5), made(6)))),
    ]


def test_a_peer_trains_the_head_with_the_lowest_loss_and_says_its_number_once_it_has_it() -> None:
    """It changes from head 0 to head 1: while it trains, the model that others get is still that of head 0. The model
    from which it trains counts for all; the received ones stand beside it, since they are merged in it."""
    it = trained(one(), (0.5, 1.0))
    models = came(1, 2, 3)
    it.handle(Pulled(models, (0, 1, 1)))
    assert it.busy  # models that come now wait
    (update,) = it.handle(Answered("losses", (2.0, 1.0)))
    assert update == Update((*models, made(4)), None, 2, may_stop=True, weights=(0.0, 0.0, 0.0, 0.0, 1.0))
    assert it.note() == 0
    assert it.made == {"0": made(3)}
    again = Peer(ME, 1, it.plan, it.reachable)
    again.restore(json.loads(json.dumps(it.state())))
    for peer in (it, again):
        peer.handle(Updated())
        assert peer.note() == 1
        (first, second) = blends(peer.handle(Pulled(came(5), (1,))))
        assert first.segment_weights == (("auto", (0, 0, 1)),)
        assert second.segment_weights == (("auto", (0.5, 0.5)),)
        assert isinstance(peer.behaviour, Choosing)
        assert peer.behaviour.received == came(5)
    assert again.state() == it.state()


def test_a_peer_that_stops_between_question_and_answer_goes_on() -> None:
    it = trained(one(), (0.5, 1.0))
    it.handle(Pulled(came(1, 2), (0, 1)))
    again = Peer(ME, 1, it.plan, it.reachable)
    again.restore(json.loads(json.dumps(it.state())))
    answered = Answered("losses", (3.0, 3.0))
    assert again.handle(answered) == it.handle(answered)
    assert again.state() == it.state()


def test_at_first_all_layers_are_averaged_as_the_core_is() -> None:
    """For `share_all` rounds, all heads are the average of all heads; the own one that is beside counts for nothing."""
    it = trained(one(share_all=1), (0.5, 1.0))
    first, second = blends(it.handle(Pulled(came(1, 2, 3), (0, 1, 1))))
    assert first.segment_weights == (("auto", (0.25,) * 4),)
    assert second.segment_weights == (("auto", (*(0.25,) * 4, 0)),)
    it.handle(Answered("losses", (1.0, 1.0)))
    it.handle(Updated())
    first, _ = blends(it.handle(Pulled(came(1, 2, 3), (0, 1, 1))))
    assert first.segment_weights == (("auto", (0.5, 0.5, 0, 0)),)


def test_a_round_without_models_trains_on() -> None:
    it = trained(one(), (0.5, 1.0))
    first, second = blends(it.handle(Pulled(())))
    assert (first.weights, first.segment_weights) == ((1.0,), (("auto", (1.0,)),))
    assert (second.weights, second.segment_weights) == ((1.0, 0.0), (("auto", (0, 1)),))


def test_in_the_last_round_all_may_be_asked_for_an_average_without_training() -> None:
    it = trained(one(rounds=2, all_reduce=True), (0.5, 1.0))
    (request,) = it.handle(Wake())
    assert isinstance(request, Request)
    assert len(request.sources) == 3
    it.handle(Pulled(came(1, 2, 3), (0, 1, 1)))
    it.handle(Answered("losses", (1.0, 2.0)))
    it.handle(Updated())
    assert it.handle(Wake()) == [Request(tuple(map(PeerId, range(1, 6))))]
    it.handle(Pulled(came(1, 2, 3, 4, 5), (0, 1, 1, 0, 0)))
    (update,) = it.handle(Answered("losses", (1.0, 2.0)))
    assert isinstance(update, Update)
    assert update.epochs == 0
    assert it.handle(Updated()) == [Drop(made(6), "unused"), Finish()]
    assert not it.made


@pytest.mark.parametrize(
    ("losses", "place"), [((2.0, 1.0), 1), ((1.0, 1.0), 0), ((math.nan, 5.0), 1), ((math.inf, math.nan), 0)]
)
def test_the_lowest_loss(losses: tuple[float, ...], place: int) -> None:
    assert lowest(losses) == place


def test_two_rounds_of_two_clusters_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers 0 and 1 are of one cluster, 2 of another: an epoch of the other cluster costs a loss of 4, one of the own
    cluster earns 1. Untrained networks are zeros, so that losses are equal at first and all choose head 0.

        first training: each peer has an epoch of its own, in its core and in its head 0; head 1 is zeros
        round 1, all hear both others: cores are (1, 1, 1) / 3, heads 0 as well. Peer 0 has with head 0 a loss of
            (−1 − 1 + 4) / 3 · 2 = 4/3, and with its own head 1 of 2/3; peer 2 of (4 + 4 − 1) / 3 · 2 = 14/3, and 7/3.
            All train head 1: each has an epoch of its own in the core and in head 1.
        round 2: cores (2, 2, 2) / 3. Head 1 is averaged of the two that came and the own one: (1, 1, 1) / 3. Head 0
            stays (1, 1, 1) / 3, so that losses are equal and head 0 is chosen. Each trains an epoch.
    """
    signs = [[-1.0, -1.0, 4.0], [-1.0, -1.0, 4.0], [4.0, 4.0, -1.0]]
    engine, data = PartsEngine(3), federation((0, 0, 1), signs, val_losses=signs)
    settings = {"rounds": 2, "n_peers": 2, "share_all": 0, "tested": "last"}
    (result,), _ = run_by_hand(monkeypatch, data, "facade", settings, engine=engine)
    before = [(one.slot, [round(v, 4) for v in one.body], [round(v, 4) for v in one.head]) for one in engine.phases]
    third, two_thirds, zero = [0.3333] * 3, [0.6667] * 3, [0.0] * 3
    assert sorted(before[:3]) == [(slot, zero, zero) for slot in range(3)]
    assert sorted(before[3:6]) == [(slot, third, zero) for slot in range(3)]
    assert sorted(before[6:]) == [(slot, two_thirds, third) for slot in range(3)]
    assert bodies(result) == [[1.6667 if me == other else 0.6667 for other in range(3)] for me in range(3)]
    assert heads(result) == [[1.3333 if me == other else 0.3333 for other in range(3)] for me in range(3)]
    assert result.communication.model_bytes == 24  # one core and one head of three numbers
    assert result.communication.received.tolist() == result.communication.merged.tolist() == [4, 4, 4]
    assert sorted(set(zip(result.pairs.receiver.tolist(), result.pairs.sender.tolist(), strict=True))) == [
        (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)
    ]  # fmt: skip


def test_no_model_is_left_behind() -> None:
    """After a run there are, for each peer, its last model and its best one at most."""
    simulator = run(simulation(Settings().replace({**TINY, "patience": 50, "share_all": 1}), "facade"))
    held = {row for learner in simulator.learners.by_peer.values() for row in learner.held_rows()}
    held |= set(simulator.learners.names.rows.values())
    assert simulator.learners.models.num_alive == len(held) <= 12
    assert not any(ref.is_made for ref in simulator.learners.names.rows)


def test_what_does_not_fit_is_refused() -> None:
    settings = Settings().replace({"n_peers": 5})
    who = participants(settings)
    check_methods(settings, ["facade"], who)
    for values, told in (
        ({"n_peers": 99}, "n_peers = 99, but each peer can hear at most 19 others"),
        ({"merge": "clipped"}, "merge = 'clipped', but facade averages models"),
        ({"merge": "median"}, "merge = 'median'"),
        ({"all_reduce": True, "schedule": "async"}, "all_reduce = true, but schedule = async"),
    ):
        with pytest.raises(SettingsError, match=told):
            check_methods(settings.replace(values), ["facade"], who)


def test_published_values_are_the_defaults() -> None:
    own = FacadeSettings()
    assert (own.heads, own.share_all, own.head, own.own_heads, own.all_reduce) == (2, 10, ("auto",), True, False)
