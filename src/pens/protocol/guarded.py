# SPDX-License-Identifier: Apache-2.0
"""Behaviours that others write are watched: what their functions return is checked, and errors name the function.

A wrong action would otherwise fail far away from its cause, or let a run wait for ever. Behaviours of pens itself are
not watched, so that this costs them nothing. A behaviour is watched by functions of its instance, which stand in front
of those of its class that others wrote.
"""

from __future__ import annotations

import copy
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar, get_args

from pens.errors import SettingsError
from pens.hooks import a_type, calling, is_ours, plain_numbers, refuse_result
from pens.protocol.behaviour import Behaviour
from pens.protocol.messages import (
    NOTE_BYTES,
    Action,
    Ask,
    Blend,
    Compare,
    Counts,
    Distances,
    Drop,
    Finish,
    Losses,
    ModelRef,
    Note,
    Phase,
    Request,
    Send,
    Update,
)
from pens.protocol.situation import Situation
from pens.settings.schema import Distance, Keep

_ACTIONS = get_args(Action)
Merging = TypeVar("Merging", Update, Blend)
_WHY_DROPPED = ("refused", "replaced", "unused", "judged")
_EVENTS = ("begin", "on_wake", "on_received", "on_pulled", "on_updated", "on_answered", "leave")
_DECISIONS = ("use", "begin_round", "hold_out", "use_if_enough")
_NUMBERS = ("wanted", "threshold", "taken")


def guarded(make: Callable[[Any], Any], peer: Situation, phase: str) -> Behaviour:
    """A peer's behaviour for a phase, watched where others wrote it."""
    with calling(f"behaviour {getattr(make, '__name__', make)}", make, "__init__"):
        made = make(peer)
    if is_ours(type(made)):
        behaviour: Behaviour = made
        return behaviour
    if not isinstance(made, Behaviour):
        raise SettingsError(
            f"the plan's behaviour for the phase {phase!r} is {a_type(made)}: it has to be a class that is "
            "derived from pens.Behaviour, for instance from pens.Gossiping"
        )
    if not hasattr(made, "peer"):
        raise SettingsError(
            f"behaviour {type(made).__name__} does not know its peer: call super().__init__(peer) in its __init__"
        )
    _Guard(made, make, peer).stand()
    return made


class _Guard:
    """What is known of one behaviour while it lives."""

    def __init__(self, behaviour: Behaviour, make: Callable[[Any], Any], peer: Situation) -> None:
        self._behaviour = behaviour
        self._make, self._peer = make, peer
        self._tries, self._events = peer.tries_state, 0
        self._untried = {"ask", "answer", "update", "updated"}
        """Moments at which the state has not been tried out yet, beside those by the number of events."""
        self._who = f"behaviour {type(behaviour).__name__}"
        self._held: Counter[ModelRef] | None = Counter(peer.made.values())
        """Models that came or were made, and are not used up; None: not known, because the behaviour was restored."""
        self._asked_to_use: set[str] = set()
        """Questions by which `use` put off an update."""
        self._depth = 0
        self._author = ""
        """The function of others that returned last, within a call of one of ours: what errors name."""

    def stand(self) -> None:
        """In front of the functions that others wrote, and of all events: what became of each model is known only if
        none is missed."""
        for name in (*_EVENTS, *_DECISIONS):
            self._watch(name, self._actions, always=name in _EVENTS)
        for name in _NUMBERS:
            self._watch(name, self._number)
        checks = {"drawn": self._peers, "someone": self._one_peer, "note": self._note, "state": self._state}
        for name, check in checks.items():
            self._watch(name, check)
        self._watch("restore", self._restored, always=True)

    def _watch(self, name: str, check: Callable[[str, Any], Any], always: bool = False) -> None:
        function = getattr(self._behaviour, name, None)
        if function is None or (is_ours(function) and not always):
            return

        def watched(*given: Any) -> Any:
            if name in ("on_received", "on_pulled") and self._held is not None and given:
                self._held.update([given[0]] if name == "on_received" else given[0])
            if self._depth == 0:
                self._author = ""
            self._depth += 1
            try:
                with calling(self._who, self._behaviour, name):
                    result = function(*given)
            finally:
                self._depth -= 1
            if name in (*_EVENTS, *_DECISIONS) and not is_ours(function):
                self._author = name
            result = check(name, result)
            if name == "on_answered":
                self._check_goes_on(given[0], result)
            if name == "leave":
                return [*result, *self._forgotten()]
            if self._tries and not self._depth and name in _EVENTS:
                self._try_state_at(name, result)
            return result

        setattr(self._behaviour, name, watched)

    def _forgotten(self) -> list[Action]:
        """Models that the phase leaves behind, neither used nor dropped: they are dropped, so that nobody holds them
        for ever."""
        if self._held is None:
            return []
        kept = Counter(self._peer.saved) + Counter(self._peer.made.values())
        return [Drop(model, "unused") for model in (self._held - kept).elements()]

    # --- state --------------------------------------------------------------------------------------------------------

    def _try_state_at(self, event: str, result: Any) -> None:
        """After 1, 2, 4, 8, … events, since what is empty at first can come back by accident; and at the first
        question, answer and update."""
        self._events += 1
        moments = {
            "ask": any(isinstance(action, Ask) for action in result),
            "answer": event == "on_answered",
            "update": any(isinstance(action, Update) for action in result),
            "updated": event == "on_updated",
        }
        now = {moment for moment in self._untried if moments[moment]}
        self._untried -= now
        if (now or self._events.bit_count() == 1) and self._lives():
            self._try_state()

    def _lives(self) -> bool:
        """Whether the peer has not entered another phase."""
        return getattr(self._behaviour.peer, "behaviour", self._behaviour) is self._behaviour

    def _try_state(self) -> None:
        """Whether a behaviour comes back from its state, as a run that is stopped here would need it to. What is wrong
        would otherwise show when such a run goes on, or never."""
        said = json.dumps(self._behaviour.state(), sort_keys=True)
        aside = copy.copy(self._peer)
        vars(aside).update({name: copy.copy(of) for name, of in vars(aside).items() if isinstance(of, dict)})
        with calling(self._who, self._behaviour, "__init__"):
            again = self._make(aside)
        with calling(self._who, self._behaviour, "restore"):
            again.restore(json.loads(said))
        with calling(self._who, self._behaviour, "state"):
            back = again.state()
        wrong = _not_plain(back)
        if wrong is not _NOTHING or json.dumps(back, sort_keys=True) != said:
            raise SettingsError(
                f"{self._who}: its state was {said:.200}, but is {back!r:.200} after `restore` into a new one: "
                "`restore` has to bring back all that `state` returns"
            )
        for name, value in vars(self._behaviour).items():
            now = vars(again).get(name, _NOTHING)
            if not (name.startswith("_") or callable(value) or name == "peer") and _differ(value, now):
                came = "is not there" if now is _NOTHING else f"is {now!r:.100}"
                raise SettingsError(
                    f"{self._who}: self.{name} is {value!r:.100}, but {came} after `restore` into a new one, so that a "
                    "run that is stopped here would go on otherwise: let `state` return it and `restore` bring it back"
                    f", or call it self._{name} if it is found anew whenever it is needed"
                )

    def _refuse(self, function: str, result: Any, remedy: str) -> NoReturn:
        refuse_result(self._who, function, result, remedy)

    # --- actions ------------------------------------------------------------------------------------------------------

    def _actions(self, function: str, result: Any) -> Any:
        """The actions, checked, with weights as plain numbers."""
        if not isinstance(result, list | tuple) or not all(isinstance(action, _ACTIONS) for action in result):
            self._refuse(function, result, "return a list of actions, such as [self.peer.update(models, …)]")
        if function == "use":
            self._check_use(result)
        if self._depth:
            return result
        author = self._author or function
        result = [self._as_plain(author, action) for action in result]
        for action in result:
            self._check(author, action, result)
        return result

    def _check_use(self, result: Sequence[Action]) -> None:
        if any(isinstance(action, Update) for action in result):
            return
        asked = {action.name for action in result if isinstance(action, Ask)}
        self._asked_to_use |= asked
        if not asked and not any(isinstance(action, Compare | Request | Finish) for action in result):
            self._refuse(
                "use", result, "return an update, or a question whose answer leads to one, else the peer waits for ever"
            )

    def _check_goes_on(self, name: str, result: Sequence[Action]) -> None:
        """After an answer for which an update was put off, there has to be one."""
        if name not in self._asked_to_use:
            return
        self._asked_to_use.discard(name)
        asked = {action.name for action in result if isinstance(action, Ask)}
        self._asked_to_use |= asked
        if not asked and not self._behaviour.peer.busy and self._lives():
            self._refuse(
                "on_answered",
                result,
                f"return an update, for which `use` has asked {name!r}, else the peer waits for ever",
            )

    def _check(self, function: str, action: Action, beside: Sequence[Action]) -> None:
        match action:
            case Send(to, answer):
                if not answer:
                    self._check_reachable(function, [to])
            case Request(sources):
                self._check_reachable(function, sources)
            case Ask():
                self._check_question(function, action, beside)
            case Compare(models, _):
                self._use_up(function, models)
            case Blend(out, models):
                self._check_models(function, models)
                if out not in self._behaviour.peer.made.values():
                    self._refuse(function, action, "make models by self.peer.blend(…), so that the peer knows of them")
                if self._held is not None:
                    self._held[out] += 1
            case Update(models):
                if sum(isinstance(other, Update) for other in beside) > 1:
                    self._refuse(function, beside, "return one update, the next may follow when it is complete")
                self._check_update(function, action)
                self._use_up(function, models)
            case Drop(model, why):
                if why not in _WHY_DROPPED:
                    self._refuse(function, action, f"the reason has to be one of {', '.join(_WHY_DROPPED)}")
                self._use_up(function, (model,))
            case _:
                pass

    def _check_update(self, function: str, update: Update) -> None:
        if not self._behaviour.peer.busy:
            self._refuse(function, update, "make updates by self.peer.update(…), so that the peer knows of them")
        if not _are_phases(update.phases):
            self._refuse(
                function,
                update.phases,
                'phases are a tuple of pens.Phase, such as pens.Phase(2, only=("auto",)): epochs, tuples of prefixes',
            )
        if update.keep not in get_args(Keep):
            self._refuse(function, update, f"`keep` has to be one of {', '.join(get_args(Keep))}")

    def _as_plain(self, function: str, action: Action) -> Action:
        """An action whose weights are Python's own numbers, whatever they came as."""
        if isinstance(action, Update):
            return self._plain(function, action)
        return self._plain(function, action) if isinstance(action, Blend) else action

    def _plain(self, function: str, update: Merging) -> Merging:
        said, lists = update.segment_weights, (list, tuple)
        fits = isinstance(said, lists) and all(isinstance(pair, lists) and len(pair) == 2 for pair in said)
        if not fits or not all(isinstance(prefix, str) for prefix, _ in said):
            self._refuse(function, said, "segment_weights are a tuple of pairs, (beginning of names, weights)")
        if update.weights is None and not said:
            return update
        whole = None if update.weights is None else self._numbers(function, update.weights)
        return replace(
            update,
            weights=whole,
            segment_weights=tuple((prefix, self._numbers(function, weights)) for prefix, weights in said),
        )

    def _numbers(self, function: str, weights: Any) -> tuple[float, ...]:
        found = plain_numbers(weights)
        if found is None:
            self._refuse(function, weights, "weights are a tuple of numbers, the own model's first")
        return found

    def _check_question(self, function: str, ask: Ask, beside: Sequence[Action]) -> None:
        if not isinstance(ask.name, str) or not isinstance(ask.query, Losses | Counts | Distances):
            self._refuse(function, ask, 'it has a name and a query, such as pens.Ask("fit", pens.Losses(models))')
        if type(self._behaviour).on_answered is Behaviour.on_answered:
            self._refuse(function, ask, "nothing hears its answer: override on_answered(self, name, answer)")
        if ask.when not in ("now", "updated"):
            self._refuse(function, ask, "`when` has to be 'now' or 'updated'")
        if ask.when == "updated" and not any(isinstance(action, Update) for action in beside):
            self._refuse(function, ask, "when = 'updated' needs an update in the same list: return one, or ask 'now'")
        if isinstance(ask.query, Losses):
            query = ask.query
            if query.on not in ("train", "val"):
                self._refuse(function, ask, "`on` has to be 'train' or 'val'")
            if not query.models and not query.beside and not query.own:
                self._refuse(function, ask, "it asks for the losses of no model: ask only where there are models")
            self._check_models(function, (*self._models(function, query.models), *query.beside))
        if isinstance(ask.query, Distances):
            if ask.query.by not in get_args(Distance):
                self._refuse(function, ask, f"`by` has to be one of {', '.join(get_args(Distance))}")
            if not ask.query.models:
                self._refuse(function, ask, "it asks for the distances of no model: ask only where there are models")
            self._check_models(function, ask.query.models)

    def _check_reachable(self, function: str, peers: Iterable[Any]) -> None:
        peer = self._behaviour.peer
        for other in peers:
            if type(other) is not int or other == peer.me or not (other in peer.reachable or other in peer.neighbours):
                self._refuse(function, other, "choose among the peers of self.peer.reachable")

    def _models(self, function: str, models: Any) -> Sequence[ModelRef]:
        if not isinstance(models, list | tuple) or not all(isinstance(model, ModelRef) for model in models):
            self._refuse(function, models, "models are a tuple of the pens.ModelRef that the peer received")
        return models

    def _check_models(self, function: str, models: Any) -> None:
        for model in self._models(function, models):
            if self._held is not None and self._held[model] < 1:
                self._refuse(function, model, "the peer does not hold it: it never came, or was used or dropped")

    def _use_up(self, function: str, models: Any) -> None:
        self._check_models(function, models)
        if self._held is not None:
            self._held.subtract(models)
            self._held += Counter()  # forgets those that are used up

    # --- what else they return ----------------------------------------------------------------------------------------

    def _number(self, function: str, result: Any) -> Any:
        if not isinstance(result, int) or result < 0:
            self._refuse(function, result, "return how many models, a whole number of at least 0")
        return result

    def _peers(self, function: str, result: Any) -> Any:
        if not isinstance(result, Sequence) or isinstance(result, str):
            self._refuse(function, result, "return a list of peers of self.peer.reachable")
        self._check_reachable(function, result)
        if len(set(result)) < len(result):
            self._refuse(function, result, "a peer stands in it twice: return different peers")
        return result

    def _one_peer(self, function: str, result: Any) -> Any:
        if result is not None:
            self._check_reachable(function, [result])
        return result

    def _note(self, function: str, result: Any) -> Note:
        """What receivers get: a copy, as a real network brings it, since the behaviour may change its own later."""
        self._check_plain(function, result)
        if (size := len((text := json.dumps(result)).encode())) > NOTE_BYTES:
            self._refuse(function, result, f"it takes {size:,} bytes as JSON, but a note has at most {NOTE_BYTES:,}")
        note: Note = json.loads(text)
        return note

    def _state(self, function: str, result: Any) -> Any:
        if not isinstance(result, dict):
            self._refuse(function, result, "return a dict of plain data")
        self._check_plain(function, result)
        return result

    def _check_plain(self, function: str, result: Any) -> None:
        if (wrong := _not_plain(result)) is not _NOTHING:
            shown = f"{wrong!r:.60}, {a_type(wrong)}"
            raise SettingsError(
                f"{self._who}: its {function} returned {shown}, within what it says: use plain data, numbers, texts, "
                "lists, and dicts whose keys are texts; list(of.items()) stands for a dict with other keys"
            )

    def _restored(self, function: str, result: Any) -> Any:
        self._held = None
        return result


_NOTHING = object()


def _are_phases(said: Any) -> bool:
    """Whether these are phases: whole epochs, and tuples of the beginnings of names."""
    return isinstance(said, tuple) and all(
        isinstance(phase, Phase)
        and type(phase.epochs) is int
        and all(isinstance(of, tuple) and all(isinstance(each, str) for each in of) for of in phase[1:])
        for phase in said
    )


def _differ(value: Any, other: Any) -> bool:
    """Whether an attribute of plain data is another one; lists and tuples are alike, and objects are not compared."""
    if other is _NOTHING:
        return True
    try:
        return repr(_as_plain(value)) != repr(_as_plain(other))
    except TypeError:
        return False


def _as_plain(data: Any) -> Any:
    if isinstance(data, dict):
        return sorted((repr(key), repr(_as_plain(value))) for key, value in data.items())
    if isinstance(data, set | frozenset):
        return sorted(repr(_as_plain(item)) for item in data)
    if isinstance(data, list | tuple | deque):
        return [_as_plain(item) for item in data]
    if data is None or isinstance(data, bool | int | float | str):
        return data
    raise TypeError


def _not_plain(data: Any) -> Any:
    """Something that does not come back from JSON as it was, but for tuples, which become lists."""
    if data is None or isinstance(data, bool | int | float | str):
        return _NOTHING if type(data) in (type(None), bool, int, float, str) else data
    if isinstance(data, dict):
        wrong = [key for key in data if type(key) is not str]
        return wrong[0] if wrong else _first_wrong(data.values())
    return _first_wrong(data) if isinstance(data, list | tuple) else data


def _first_wrong(items: Iterable[Any]) -> Any:
    return next((wrong for item in items if (wrong := _not_plain(item)) is not _NOTHING), _NOTHING)
