# SPDX-License-Identifier: Apache-2.0
"""A merge rule is tried out before any work starts, on a few small numbers: what cannot work is told at once.

Each segment is merged with 1, 2, 3 and 5 received models, three merges at once. A rule has to give the same when it is
asked again (it draws no random numbers), when a merge is alone (what is computed beside it must not change it) and, if
it says so, when it sees a part of the numbers. Equal models have to come out as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from pens.engine.layout import Layout
from pens.errors import SettingsError
from pens.merging.merger import answer, own_weights, pieces
from pens.merging.rule import LinearRule, Merge, MergeRule, Merging, Rows

_RECEIVED = 1, 2, 3, 5
_MERGES, _NUMBERS = 3, 6


def try_out(
    merging: Merging,
    layout: Layout,
    own_in_merge: bool = True,
    prefixes: Sequence[str] = (),
    knows_samples: bool = True,
) -> None:
    """Refuse a rule that does not do what rules do, or names of tensors that this network does not have.

    `prefixes`: for which tensors the method says weights. `knows_samples`: whether numbers of samples are known."""
    for segment in sorted({piece.segment for piece in pieces(layout, merging, tuple(prefixes))}):
        for count in _RECEIVED:
            with _told_when(count, own_in_merge):
                merges = _merges(count, own_in_merge, knows_samples)
                if isinstance(merging.rule, LinearRule):
                    _try_weights(merging, segment, merges)
                else:
                    _try_rows(merging, segment, merges)


@contextmanager
def _told_when(count: int, own_in_merge: bool) -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        models = f"{count} received model{'s' if count > 1 else ''}"
        own = "and the own one" if own_in_merge else "without the own one"
        raise SettingsError(f"{error} (tried before the run, with {models} {own})") from error.__cause__


def _try_weights(merging: Merging, segment: str, merges: Sequence[Merge]) -> None:
    for merge in merges:
        if own_weights(merging, merge, segment) != own_weights(merging, merge, segment):
            _refuse_another_answer(merging, "other weights")


def _refuse_another_answer(merging: Merging, what: str) -> None:
    raise SettingsError(
        f"merge rule {merging.rule.name!r} gives {what} when it is asked again: it must draw no random numbers and "
        "remember nothing, so that a run can be repeated"
    )


def _try_rows(merging: Merging, segment: str, merges: Sequence[Merge]) -> None:
    rule, who = merging.rule, f"merge rule {merging.rule.name!r}"
    if type(rule).merge is MergeRule.merge:
        raise SettingsError(f"{who} has no method `merge`, and is no LinearRule: write one")
    models, own = _numbers(merges)
    together = _asked(merging, segment, merges, models, own)
    if not torch.equal(together, _asked(merging, segment, merges, models, own)):
        _refuse_another_answer(merging, "another model")
    alone = [_asked(merging, segment, merges[i : i + 1], models[i : i + 1], own[i : i + 1]) for i in range(_MERGES)]
    if not _agree(together, torch.cat(alone)):
        raise SettingsError(
            f"{who} lets a merge depend on those beside it: computed alone, it comes out otherwise. Axis 0 of the "
            "models counts merges that have nothing to do with each other: reduce axis 1, the models of a merge, or "
            "axis 2, their numbers"
        )
    if rule.coordinatewise:
        halves = slice(_NUMBERS // 2), slice(_NUMBERS // 2, None)
        parts = [_asked(merging, segment, merges, models[:, :, half], own[:, half]) for half in halves]
        if not _agree(together, torch.cat(parts, 1)):
            raise SettingsError(
                f"{who} says coordinatewise = True, but numbers of a merged model depend on more than the same number "
                "of each model: leave coordinatewise out"
            )
    equal = own[:1].expand_as(own)
    if not _agree(equal, _asked(merging, segment, merges, equal[:, None].expand_as(models), equal)):
        raise SettingsError(
            f"{who} makes another model of models that are all equal: these have to come out as they are, so divide "
            "sums by the number of models or by the sum of their weights"
        )


def _asked(merging: Merging, segment: str, merges: Sequence[Merge], models: Tensor, own: Tensor) -> Tensor:
    """The rule's answer, to copies of its own."""
    return answer(merging, Rows(own.clone(), models.clone(), merges, segment))


def _agree(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-5)


def _numbers(merges: Sequence[Merge]) -> tuple[Tensor, Tensor]:
    """The models to merge, all different, and the own ones.  [merge, model, number], [merge, number]"""
    count = len(merges[0].senders) + int(not merges[0].own_in_merge)
    numbers = torch.arange(_MERGES * count * _NUMBERS, dtype=torch.float32)
    models = (numbers * numbers).sin().view(_MERGES, count, _NUMBERS)
    return models[:, int(not merges[0].own_in_merge) :], models[:, 0]


def _merges(received: int, own_in_merge: bool, knows_samples: bool) -> list[Merge]:
    """Peers 0, 1, 2 merge models of peers 3 and on, and their own."""
    found = []
    for me in range(_MERGES):
        others = tuple(range(_MERGES, _MERGES + received))
        senders = (me, *others) if own_in_merge else others
        samples = tuple(10 + sender for sender in senders) if knows_samples else None
        found.append(Merge(me, senders, own_in_merge, samples))
    return found
