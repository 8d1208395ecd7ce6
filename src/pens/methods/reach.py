# SPDX-License-Identifier: Apache-2.0
"""Whom a method lets a peer talk to, checked where others wrote it: what is wrong would otherwise show much later, as a
peer that talks to nobody, or as results that depend on the order."""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise

from pens.hooks import calling, is_ours, refuse_result
from pens.methods.method import Method
from pens.protocol.messages import PeerId

_RETURN = "return a list or tuple of some of `others`, in ascending order"


def reach(method: Method, me: PeerId, others: Sequence[PeerId], alike: Sequence[PeerId]) -> Sequence[PeerId]:
    """`Method.reachable`: whom a peer may talk to."""
    with calling(f"method {method.name!r}", method, "reachable"):
        found = method.reachable(me, others, alike)
    if found is not others and found is not alike and not is_ours(method.reachable):
        _check(f"method {method.name!r}", me, found, others)
    return found


def _check(whose: str, me: PeerId, found: Sequence[PeerId], others: Sequence[PeerId]) -> None:
    if not isinstance(found, Sequence) or isinstance(found, str):
        refuse_result(whose, "reachable", found, _RETURN)
    known: Container[PeerId] = frozenset(others) if isinstance(others, list | tuple) else others
    for other in found:
        if type(other) is not int or other not in known:
            why = "it is the peer itself" if other == me else f"{other!r} is not one of `others`"
            refuse_result(whose, f"reachable (for peer {me})", found, f"{why}; {_RETURN}")
    if any(other <= before for before, other in pairwise(found)):
        refuse_result(whose, f"reachable (for peer {me})", found, f"{_RETURN}, each once, for instance by sorted(…)")
