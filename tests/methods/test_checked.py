# SPDX-License-Identifier: Apache-2.0
"""What methods of others return is checked when a run begins, and refused in words that name the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import pens
from pens.errors import SettingsError
from pens.methods.method import Method
from pens.methods.reach import reach
from pens.methods.spec import RunSpec
from pens.parts import METHODS
from pens.protocol.messages import PeerId
from pens.settings.tree import Settings
from tests.conftest import TINY, TinyNet, tiny_dataset

REACHES: dict[str, tuple[Callable[..., Any], str]] = {
    "nobody": (lambda me, others: None, "its reachable returned None: return a list or tuple of some of"),
    "a set": (lambda me, others: set(others), "returned {.*}, a set: return a list or tuple of some of `others`"),
    "a text": (lambda me, others: "12", "returned '12', a str: return a list or tuple of some of `others`"),
    "itself": (
        lambda me, others: sorted([*others, me]),
        r"reachable \(for peer 0\) returned .*: it is the peer",
    ),
    "a stranger": (lambda me, others: [99], "returned .99., a list: 99 is not one of `others`"),
    "a truth": (lambda me, others: [True], "True is not one of `others`"),
    "descending": (lambda me, others: [*others][::-1], "returned .*: return .*, in ascending order, each once"),
    "twice": (lambda me, others: [others[0]] * 2, "returned .*: return .*, in ascending order, each once"),
    "an error": (
        lambda me, others: others.sort(),
        r"its reachable failed: AttributeError: .* \(.*test_checked",
    ),
}


class Reaching(Method):
    name = "reaching"
    reaches: Callable[..., Any]

    def reachable(self, me: PeerId, others: Sequence[PeerId], alike: Sequence[PeerId]) -> Sequence[PeerId]:
        found: Sequence[PeerId] = type(self).reaches(me, others)
        return found


@pytest.mark.parametrize("wrong", REACHES)
@pytest.mark.parametrize("values", [{}, {"topology": "ring"}], ids=["all", "ring"])
def test_whom_a_peer_reaches_is_checked(wrong: str, values: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_found", "_references", "_given"):
        monkeypatch.setattr(METHODS, name, {})
    found, reason = REACHES[wrong]
    monkeypatch.setattr(Reaching, "reaches", found, raising=False)
    with pytest.raises(SettingsError, match=f"method 'reaching': .*{reason}"):
        pens.run({**TINY, **values}, methods=Reaching, model=TinyNet, data=tiny_dataset(), device="cpu")


def test_whom_it_may_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    others = tuple(map(PeerId, (2, 5, 1 << 62)))
    for kept in (others, others[:1], [*others[1:]], ()):
        monkeypatch.setattr(Reaching, "reaches", lambda me, others, kept=kept: kept, raising=False)
        assert reach(Reaching(), PeerId(3), others, ()) is kept


class Wrong(Method):
    """Returns what a test says."""

    name = "wrong"

    def __init__(self, function: str, result: object) -> None:
        if function == "server_plan":
            self.num_servers = 1
        setattr(self, function, lambda *given: result)


PLAN = Method().plan(RunSpec.of(Method(), Settings(), 0).settings, 1, 1, 2)


@pytest.mark.parametrize(
    ("function", "result", "reason"),
    [
        ("resolve", None, r"its resolve returned a NoneType: return pens\.Settings"),
        ("plan", None, r"its plan returned None: return a pens\.Plan, as super\(\)\.plan"),
        ("plan", {"rounds": 3}, "its plan returned {'rounds': 3}, a dict"),
        ("plan", replace(PLAN, behaviours=None), "its plan has behaviours = None: give a dict of classes"),  # type: ignore[arg-type]
        ("plan", replace(PLAN, behaviours={"gossiping": 3}), "its plan has behaviours = .*: give a dict of classes"),  # type: ignore[dict-item]
        ("server_plan", None, r"its server_plan returned None: .* as super\(\)\.server_plan"),
        ("learning", None, "its learning returned None: return what super"),
        ("selection", 3, "its selection returned 3, an? int: return what super"),
    ],
)
def test_what_a_method_returns_is_checked(function: str, result: object, reason: str) -> None:
    def asked() -> None:
        spec = RunSpec.of(Wrong(function, result), Settings(), 0)
        spec.plan(9, 5, 4)
        spec.server_plan(4)
        spec.learning()
        spec.selection(4)

    with pytest.raises(SettingsError, match=f"method 'wrong': {reason}"):
        asked()


class Broken(Method):
    name = "broken"

    def check(self, settings: pens.RunSettings, who: pens.Participants) -> None:
        raise KeyError("no")


def test_what_fails_is_named() -> None:
    with pytest.raises(SettingsError, match=r"method 'broken': its check failed: KeyError: 'no' \(.*test_checked"):
        pens.run(TINY, methods=Broken, model=TinyNet, data=tiny_dataset(), device="cpu")
