# SPDX-License-Identifier: Apache-2.0
"""Merges carried out on a stack of models: which numbers a rule is asked about, with which weights, how many at once.

A row is cut into pieces, each a set of tensors that are merged alike: those of one of the rule's segments, or those for
which the method says weights of their own. What is in no piece keeps the values of the peer's own model.

Weights are left to the stack (`ModelStack.mix` and `blend`). Any other rule gets copies of the rows, of merges with
equally many models, as many at once as fit a bound on memory; where one merge alone exceeds it and the rule looks at
single numbers, its rows are cut as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from pens.engine.layout import Layout
from pens.engine.stack import ModelStack
from pens.errors import SettingsError, suggest
from pens.hooks import calling, refuse_result
from pens.merging.rule import LinearRule, Merge, Merging, Rows, SegmentWeights, read_weights

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

_MERGES_AT_ONCE = 1024  # added up, so that only so many models are in use beside the result
_NUMBERS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}
"""Numbers of the models that a rule gets at once: what a cache holds, and a quarter of a gigabyte."""


@dataclass(frozen=True)
class RowMerge:
    """One merge: what a rule is told, and where the models are."""

    rows: list[int]
    """Of the models to merge, the own one first where it is merged."""
    own: int
    """Of the receiver's own model."""
    about: Merge
    segment_weights: SegmentWeights = ()
    """Weights of some tensors, where the method says them."""


class Done(NamedTuple):
    """Some numbers of some merged models."""

    places: list[int]
    """Which merges these are."""
    columns: slice
    values: Tensor


class Piece(NamedTuple):
    """Tensors that are merged alike."""

    segment: str
    prefix: str | None
    """That of the method's own weights, where it has some for these tensors."""
    ranges: tuple[slice, ...]
    """Where they lie in a row."""


def merge_rows(
    models: ModelStack, layout: Layout, merging: Merging, merges: Sequence[RowMerge], numbers_at_once: int | None = None
) -> Tensor:
    """The merged models.  → [merge, size]

    `numbers_at_once`: a bound on what a rule that is not linear gets; None: what suits the device.
    """
    merged: Tensor | None = None
    bound = numbers_at_once or _NUMBERS_AT_ONCE.get(models.device.type, _NUMBERS_AT_ONCE["cuda"])
    received = [place for place, merge in enumerate(merges) if merge.rows != [merge.own]]
    for prefixes, places in _alike(received, lambda place: tuple(p for p, _ in merges[place].segment_weights)):
        for piece in pieces(layout, merging, prefixes):
            some = [_within(merges[place], piece.prefix) for place in places]
            for done in _merged(models, merging, some, piece, bound):
                if len(done.places) == len(merges) and done.values.shape[1] == models.size:
                    return done.values  # whole models, and all of them
                merged = _own_models(models, merges) if merged is None else merged
                _put(merged, [places[i] for i in done.places], done)
    return _own_models(models, merges) if merged is None else merged


def _own_models(models: ModelStack, merges: Sequence[RowMerge]) -> Tensor:
    """What stays where nothing is merged."""
    return models.read([merge.own for merge in merges])


def pieces(layout: Layout, merging: Merging, prefixes: tuple[str, ...]) -> tuple[Piece, ...]:
    """What is merged alike. `prefixes`: those for which the method says weights."""
    who = _who(merging)
    segments = _segments(merging)
    begins = [begin for of in segments.values() for begin in of]
    if twice := [begin for begin in begins if begins.count(begin) > 1]:
        raise SettingsError(f"{who} names {twice[0]!r} in two segments, or twice in one: give it to one of them, once")
    segment_of = {begin: name for name, of in segments.items() for begin in of}
    chosen = _found(layout, tuple(segment_of) or ("",), f"{who} has a segment")
    only = _found(layout, merging.only or ("",), "merge_only names")
    both = [name for name in chosen if name in only]
    check_prefixes(layout, merging.own, "the method keeps as each peer's own")
    names = [name for name in both if name not in merging.kept(layout)]
    if not both:
        raise SettingsError(f"merge_only and the segments of {who} have no tensor in common: nothing would be merged")
    if merging.own and not names:
        raise SettingsError(
            f"the method keeps {', '.join(merging.own)} as each peer's own, which is all that could be merged: name a "
            "smaller part of the network"
        )
    said = _found(layout, prefixes, "the method says weights for") if prefixes else {}
    for prefix in prefixes:
        if not any(name in names for name in layout.places_of([prefix])):
            left_out = "merge_only leaves it out" if merging.only else f"{who} has no segment there"
            raise SettingsError(f"the method says weights for {prefix!r}, but {left_out}: merge it, too")
    alike = _alike(names, lambda name: (segment_of.get(chosen[name], ""), said.get(name)))
    return tuple(Piece(segment, prefix, layout.ranges(those)) for (segment, prefix), those in alike)


def merged_names(layout: Layout, merging: Merging) -> list[str]:
    """The tensors that are merged. Of the others, nobody reads those of received models."""
    ranges = [columns for piece in pieces(layout, merging, ()) for columns in piece.ranges]
    places = (*layout.trained, *layout.kept)
    return [place.name for place in places if any(r.start <= place.start < place.stop <= r.stop for r in ranges)]


def _segments(merging: Merging) -> Mapping[str, Sequence[str]]:
    """The rule's own segments, checked."""
    with calling(_who(merging), merging.rule, "segments"):
        found: Any = merging.rule.segments(merging.options)
    fits = isinstance(found, Mapping) and all(
        isinstance(begins, Sequence) and not isinstance(begins, str) and all(isinstance(each, str) for each in begins)
        for begins in found.values()
    )
    if not fits:
        refuse_result(
            _who(merging), "segments", found, 'return names with lists of beginnings, such as {"head": ["layers.9"]}'
        )
    segments: Mapping[str, Sequence[str]] = found
    return segments


def _who(merging: Merging) -> str:
    return f"merge rule {merging.rule.name!r}"


def _put(merged: Tensor, places: list[int], done: Done) -> None:
    if len(places) == len(merged):  # all of them, in order
        merged[:, done.columns] = done.values
    else:
        merged[torch.tensor(places, device=merged.device), done.columns] = done.values


def _found(layout: Layout, prefixes: tuple[str, ...], what: str) -> dict[str, str]:
    """The tensors that prefixes stand for. Each prefix has to stand for some, alone."""
    check_prefixes(layout, prefixes, what)
    return layout.places_of(prefixes)


def check_prefixes(layout: Layout, prefixes: Iterable[str], what: str) -> None:
    """Refuse a prefix that no tensor's name begins with. `what` says who names it."""
    for prefix in prefixes:
        if not layout.places_of([prefix]):
            names = [place.name for place in (*layout.trained, *layout.kept)]
            raise SettingsError(
                f"{what} {prefix!r}, but no tensor's name begins with it, up to a dot or to its end"
                f"{suggest(prefix, names) or '.'} The network has {', '.join(names)}"
            )


def _within(merge: RowMerge, prefix: str | None) -> RowMerge:
    """A merge as it is for a piece."""
    if prefix is None:
        return merge
    return replace(merge, about=replace(merge.about, weights=dict(merge.segment_weights)[prefix]))


def _merged(
    models: ModelStack, merging: Merging, merges: Sequence[RowMerge], piece: Piece, bound: int
) -> Iterator[Done]:
    """A piece of some merges."""
    if isinstance(merging.rule, LinearRule):
        return _by_weights(models, merging, merges, piece)
    return _by_rows(models, merging, merges, piece, bound)


def _by_weights(models: ModelStack, merging: Merging, merges: Sequence[RowMerge], piece: Piece) -> Iterator[Done]:
    """A linear rule: the stack adds the models up."""
    weighted = [_counting(merge.rows, _weights(merging, merge, piece.segment)) for merge in merges]
    for is_plain, places in _alike(range(len(merges)), lambda place: weighted[place][1] is None):
        for start in range(0, len(places), _MERGES_AT_ONCE):
            some = places[start : start + _MERGES_AT_ONCE]
            groups, shares = [weighted[p][0] for p in some], [weighted[p][1] or () for p in some]
            for columns in piece.ranges:
                added = models.mix(groups, columns) if is_plain else models.blend(groups, shares, columns)
                yield Done(some, columns, added)


def _counting(rows: list[int], weights: Sequence[float] | None) -> tuple[list[int], Sequence[float] | None]:
    """Rows and weights without those that count for nothing, whatever their numbers are; but for the first one, from
    which differences are taken. Where one model counts for all, that one alone, which then comes out to the last bit.
    """
    if weights is None:
        return rows, None
    counting = [place for place, weight in enumerate(weights) if weight]
    if len(counting) == 1 and weights[counting[0]] == 1:
        return [rows[counting[0]]], None
    there = sorted({0, *counting})
    return [rows[place] for place in there], [weights[place] for place in there]


def _weights(merging: Merging, merge: RowMerge, segment: str) -> Sequence[float] | None:
    if merge.about.weights is not None:
        return merge.about.weights
    return own_weights(merging, merge.about, segment)


def own_weights(merging: Merging, merge: Merge, segment: str) -> tuple[float, ...] | None:
    """What a linear rule says, checked; None: the plain average."""
    rule = merging.rule
    assert isinstance(rule, LinearRule)
    with calling(_who(merging), rule, "weights"):
        weights = rule.weights(merge, segment, merging.options)
    return None if weights is None else read_weights(weights, len(merge.senders), _who(merging))


def _by_rows(
    models: ModelStack, merging: Merging, merges: Sequence[RowMerge], piece: Piece, bound: int
) -> Iterator[Done]:
    """Any other rule: it gets the rows."""
    for (count, _), places in _alike(range(len(merges)), lambda p: (len(merges[p].rows), merges[p].about.own_in_merge)):
        for block in _blocks(piece.ranges, max(1, bound // count) if merging.rule.coordinatewise else None):
            at_once = max(1, bound // (count * sum(map(_length, block))))
            for start in range(0, len(places), at_once):
                some = places[start : start + at_once]
                values = _asked(models, merging, [merges[place] for place in some], piece.segment, block)
                for columns, part in zip(block, torch.split(values, [*map(_length, block)], 1), strict=True):
                    yield Done(some, columns, part)


def _blocks(ranges: Sequence[slice], at_most: int | None) -> list[tuple[slice, ...]]:
    """Which numbers a rule gets at once: all ranges, or pieces of them where no more than so many are allowed."""
    if at_most is None:
        return [tuple(ranges)]
    return [(slice(i, min(i + at_most, r.stop)),) for r in ranges for i in range(r.start, r.stop, at_most)]


def _asked(
    models: ModelStack, merging: Merging, merges: Sequence[RowMerge], segment: str, block: Sequence[slice]
) -> Tensor:
    """What a rule answers, checked.  → [merge, number]"""
    own = _read(models, [merge.own for merge in merges], block)
    rows = _read(models, [row for merge in merges for row in merge.rows], block).view(len(merges), -1, own.shape[1])
    return answer(merging, Rows(own, rows, [merge.about for merge in merges], segment))


def answer(merging: Merging, rows: Rows) -> Tensor:
    """The rule's own answer; an error that names it where that is no model.  → [merge, number]"""
    who = _who(merging)
    with calling(who, merging.rule, "merge"):
        merged: Any = merging.rule.merge(rows, merging.options)
    wanted = f"return one row for each merge, a tensor of shape {list(rows.own.shape)}"
    if not isinstance(merged, Tensor):
        refuse_result(who, "merge", merged, wanted)
    if merged.shape != rows.own.shape:
        raise SettingsError(f"{who}: its merge returned a tensor of shape {list(merged.shape)}: {wanted}")
    if merged.dtype not in (torch.float32, torch.float64):
        raise SettingsError(f"{who}: its merge returned numbers of the type {merged.dtype}: return torch.float32")
    if not bool(torch.isfinite(merged).all()):
        raise SettingsError(f"{who}: its merge returned numbers that are not finite, from models whose numbers are")
    return merged.to(rows.own)


def _read(models: ModelStack, rows: Sequence[int], block: Sequence[slice]) -> Tensor:
    parts = [models.read(rows, columns) for columns in block]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _length(columns: slice) -> int:
    return int(columns.stop - columns.start)


def _alike(things: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    """Things with the same key together, in the order of their first ones."""
    found: dict[K, list[T]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return list(found.items())
