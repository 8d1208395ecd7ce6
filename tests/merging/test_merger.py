# SPDX-License-Identifier: Apache-2.0
"""Which numbers are merged, with which weights, how many at once; and what is told of a rule that does it wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pens.engine.functional import StackedNetwork
from pens.engine.layout import Layout
from pens.engine.stack import ModelStack
from pens.errors import SettingsError
from pens.merging.clipped import Clipped, ClippedSettings
from pens.merging.mean import Mean
from pens.merging.median import Median
from pens.merging.merger import RowMerge, merge_rows, pieces
from pens.merging.rule import LinearRule, Merge, MergeRule, Merging, Rows, check_said
from pens.merging.trial import try_out

CPU = torch.device("cpu")
LAYOUT = Layout.stored(
    {"conv.weight": torch.Size([2]), "conv.bias": torch.Size([1]), "head.weight": torch.Size([2])},
    {"conv.running": torch.Size([1]), "head.frozen": torch.Size([1])},
)
"""A row: conv.weight 0 1, conv.bias 2, head.weight 3 4, and of what is not trained conv.running 5, head.frozen 6."""
OWN, OTHER = [0.0] * 7, [8.0, 16.0, 24.0, 32.0, 40.0, 48.0, 56.0]
ABOUT = Merge(0, (0, 1), True, (1, 3))


def merged(how: Merging, about: Merge = ABOUT, **values: Any) -> list[float]:
    """The own model, of zeros, and one other."""
    stack = ModelStack(7, CPU)
    rows = stack.add(torch.tensor([OWN, OTHER]))
    found: list[float] = merge_rows(stack, LAYOUT, how, [RowMerge(rows, rows[0], about, **values)])[0].tolist()
    return found


@pytest.mark.parametrize("rule", [Mean(), Median()])
@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ((), [4, 8, 12, 16, 20, 24, 28]),
        (("conv",), [4, 8, 12, 0, 0, 24, 0]),  # the buffer conv.running among them
        (("conv.w", "head.f"), [4, 8, 0, 0, 0, 0, 28]),
    ],
)
def test_what_is_not_merged_keeps_the_own_models_values(
    rule: MergeRule, only: tuple[str, ...], expected: list[float]
) -> None:
    assert merged(Merging(rule, only=only)) == expected
    assert merged(Merging(rule, only=only), replace(ABOUT, senders=(1,), own_in_merge=False)) == expected


class BodyAndHead(LinearRule):
    """Halves of the body, a quarter of the other's head; the rest is nobody's."""

    name = "body-and-head"

    def segments(self, options: object) -> Mapping[str, Sequence[str]]:
        return {"body": ["conv.w", "conv.r"], "head": ["head"]}

    def weights(self, merge: Merge, segment: str, options: object) -> Sequence[float] | None:
        return None if segment == "body" else (0.75, 0.25)


class Segments(MergeRule):
    """Writes down which numbers it is asked about; the body's other model, the head's own one."""

    name = "segments"

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[float]]] = []

    def segments(self, options: object) -> Mapping[str, Sequence[str]]:
        return {"body": ["conv"], "head": ["head"]}

    def merge(self, rows: Rows, options: object) -> Tensor:
        self.asked.append((rows.segment, rows.received[0, 0].tolist()))
        return rows.received[:, 0] if rows.segment == "body" else rows.own


def test_a_rule_is_asked_segment_by_segment() -> None:
    assert merged(Merging(BodyAndHead())) == [4, 8, 0, 8, 10, 24, 14]
    rule = Segments()
    assert merged(Merging(rule)) == [8, 16, 24, 0, 0, 48, 0]
    assert rule.asked == [("body", [8, 16, 24, 48]), ("head", [32, 40, 56])]
    assert merged(Merging(BodyAndHead(), only=("head.w",))) == [0, 0, 0, 8, 10, 0, 0]


def test_the_longest_beginning_counts_and_ranges_are_as_long_as_can_be() -> None:
    names = LAYOUT.places_of(["conv", "conv.b", ""])
    assert names == {
        "conv.weight": "conv", "conv.bias": "conv.b", "head.weight": "", "conv.running": "conv", "head.frozen": "",
    }  # fmt: skip
    assert LAYOUT.ranges({"conv.weight", "conv.bias", "head.frozen"}) == (slice(0, 3), slice(6, 7))
    assert [piece.ranges for piece in pieces(LAYOUT, Merging(Mean()), ())] == [(slice(0, 7),)]


def test_a_method_says_weights_for_some_parameters() -> None:
    """A quarter of the other's head, an eighth of its bias, and all of the rest, or what the rule says."""
    told = (("head", (0.75, 0.25)), ("conv.b", (0.875, 0.125)))
    assert merged(Merging(Mean()), replace(ABOUT, weights=(0.0, 1.0)), segment_weights=told) == [
        8, 16, 3, 8, 10, 48, 14,
    ]  # fmt: skip
    assert merged(Merging(Mean()), segment_weights=told) == [4, 8, 3, 8, 10, 24, 14]
    assert merged(Merging(Mean(), only=("conv",)), segment_weights=told) == [4, 8, 3, 0, 0, 24, 0]


def test_merges_that_differ_are_carried_out_together() -> None:
    """One alone, one with weights, one with weights for its head, one by the rule."""
    stack = ModelStack(7, CPU)
    own, other = stack.add(torch.tensor([OWN, OTHER]))
    merges = [
        RowMerge([other], other, Merge(1, (1,), True)),
        RowMerge([own, other], own, replace(ABOUT, weights=(0.75, 0.25))),
        RowMerge([own, other], own, ABOUT, (("head", (0.0, 1.0)),)),
        RowMerge([own, other], own, ABOUT),
    ]
    quarter, half = [value / 4 for value in OTHER], [value / 2 for value in OTHER]
    expected = [OTHER, quarter, [*half[:3], 32, 40, 24, 56], half]
    assert merge_rows(stack, LAYOUT, Merging(Mean()), merges).tolist() == expected


class Seen(Median):
    """Writes down how much it is shown."""

    def __init__(self, coordinatewise: bool) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.coordinatewise = coordinatewise  # type: ignore[misc]

    def merge(self, rows: Rows, options: object) -> Tensor:
        self.shapes.append(tuple(rows.models.shape))
        return super().merge(rows, options)


@pytest.mark.parametrize(
    ("at_once", "cut", "whole"),
    [
        (1000, [(5, 3, 10)], [(5, 3, 10)]),
        (60, [(2, 3, 10), (2, 3, 10), (1, 3, 10)], [(2, 3, 10), (2, 3, 10), (1, 3, 10)]),
        (1, [(1, 3, 1)] * 50, [(1, 3, 10)] * 5),
        (15, [(1, 3, 5)] * 10, [(1, 3, 10)] * 5),  # a row of ten numbers is cut in two where a rule allows it
    ],
)
def test_no_more_is_shown_at_once_than_memory_has_room_for(
    at_once: int, cut: list[tuple[int, ...]], whole: list[tuple[int, ...]]
) -> None:
    stack = ModelStack(10, CPU)
    rows = stack.add(torch.randn(15, 10))
    merges = [RowMerge(rows[3 * i : 3 * i + 3], rows[3 * i], Merge(0, (0, 1, 2), True)) for i in range(5)]
    layout = Layout.stored({"w": torch.Size([10])}, {})
    for coordinatewise, shapes in ((True, cut), (False, whole)):
        rule = Seen(coordinatewise)
        found = merge_rows(stack, layout, Merging(rule), merges, at_once)
        assert rule.shapes == shapes
        assert torch.equal(found, stack.read(rows).view(5, 3, 10).median(1).values)


def test_so_many_merges_are_added_up_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = ModelStack(2, CPU)
    rows = stack.add(torch.randn(6, 2))
    layout = Layout.stored({"w": torch.Size([2])}, {})
    merges = [RowMerge([r, rows[0]], r, replace(ABOUT, weights=(0.75, 0.25) if r % 2 else None)) for r in rows[1:]]
    found = merge_rows(stack, layout, Merging(Mean()), merges)
    monkeypatch.setattr("pens.merging.merger._MERGES_AT_ONCE", 2)
    assert torch.equal(merge_rows(stack, layout, Merging(Mean()), merges), found)


def test_merges_with_and_without_the_own_model_are_not_mixed_up() -> None:
    """Clipped with a large radius is the mean: (0 + 2 + 4) / 3 with the own model, and 0 + (2 + 4 + 6) / 3 without."""
    stack = ModelStack(1, CPU)
    rows = stack.add(torch.tensor([[0.0], [2.0], [4.0], [6.0]]))
    layout = Layout.stored({"w": torch.Size([1])}, {})
    merges = [
        RowMerge(rows[:3], rows[0], Merge(0, (0, 1, 2), True)),
        RowMerge(rows[1:], rows[0], Merge(0, (1, 2, 3), False)),
    ]
    how = Merging(Clipped(), ClippedSettings(clip_radius=100.0))
    assert merge_rows(stack, layout, how, merges).tolist() == [[2.0], [4.0]]


def test_buffers_are_merged_and_kept_as_parameters_are() -> None:
    """Of a network with running averages: `merge_only` its first layer, whose name their names begin with."""

    class WithBuffer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(2, 2)
            self.first.register_buffer("mean", torch.zeros(2))
            self.last = nn.Linear(2, 3)
            self.last.register_buffer("mean", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            output: Tensor = self.last(self.first(x) - self.first.mean) - self.last.mean
            return output

    network = StackedNetwork(WithBuffer, torch.randn(3, 2), 3)
    stack = ModelStack(network.size, CPU)
    rows = stack.add(torch.arange(2.0)[:, None].expand(-1, network.size))
    how = Merging(Mean(), only=("first",))
    found = merge_rows(stack, network.stored, how, [RowMerge(rows, rows[0], ABOUT)])
    tensors = network.state(found)
    assert {name: set(t.flatten().tolist()) for name, t in tensors.items()} == {
        "first.weight": {0.5}, "first.bias": {0.5}, "first.mean": {0.5},
        "last.weight": {0.0}, "last.bias": {0.0}, "last.mean": {0.0},
    }  # fmt: skip


# --- rules that do it wrong -------------------------------------------------------------------------------------------


class Own(MergeRule):
    """A user's rule."""

    name = "my-rule"

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def merge(self, rows: Rows, options: object) -> Tensor:
        found: Tensor = self.answer(rows) if callable(self.answer) else self.answer  # type: ignore[assignment]
        return found


class OwnWeights(LinearRule):
    """Likewise."""

    name = "my-rule"

    def __init__(self, *weights: float) -> None:
        self.said = weights

    def weights(self, merge: Merge, segment: str, options: object) -> Sequence[float]:
        return self.said


class Elsewhere(Mean):
    """A rule for another network."""

    name = "my-rule"

    def segments(self, options: object) -> Mapping[str, Sequence[str]]:
        return {"body": ["convolution"]}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Own(lambda rows: rows.models), r"returned a tensor of shape \[3, 4, 6\]: return one row .* shape \[3, 6\]"),
        (Own(None), "'my-rule' returned NoneType: return one row per merge"),
        (Own(lambda rows: rows.own * torch.nan), "'my-rule' returned numbers that are not finite"),
        (Own(lambda rows: rows.own.index_fill(1, torch.tensor([2]), torch.inf)), "numbers that are not finite"),
        (Own(lambda rows: rows.own / 0), "'my-rule' returned numbers that are not finite"),
        (Own(lambda rows: rows.models.mean((0, 1)).expand_as(rows.own)), "'my-rule' mixes merges"),
        (Own(lambda rows: rows.nothing), "'my-rule' fails: AttributeError"),
        (MergeRule(), "has no method `merge`, and is no LinearRule"),
        (OwnWeights(0.5, 0.5), "'my-rule' says 2 weights for 4 models"),
        (OwnWeights(1, 1, 1, 1), "'my-rule' says weights that sum to 4: divide them by their sum"),
        (OwnWeights(0.1, 0.1, 0.1, 0.1), "'my-rule' says weights that sum to 0.4: divide them by their sum"),
        (OwnWeights(float("nan"), 0, 0, 0), "'my-rule' says weights that sum to nan"),
        (Elsewhere(), "'my-rule' has a segment 'convolution', but no tensor's name begins with it: .* conv.weight"),
    ],
)  # fmt: skip
def test_a_rule_that_does_it_wrong_is_told_by_name(rule: MergeRule, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        try_out(Merging(rule), LAYOUT)


@pytest.mark.parametrize("own_in_merge", [True, False])
@pytest.mark.parametrize("rule", [Mean(), Median(), BodyAndHead(), Own(lambda rows: rows.models[:, -1])])
def test_a_rule_that_does_it_right_passes(rule: MergeRule, own_in_merge: bool) -> None:
    if not isinstance(rule, BodyAndHead):
        try_out(Merging(rule, only=("conv",)), LAYOUT, own_in_merge)
    else:
        with pytest.raises(SettingsError, match="2 weights for 4 models"):
            try_out(Merging(rule), LAYOUT, own_in_merge)


class Shown(MergeRule):
    """Keeps what it is shown."""

    name = "my-rule"

    def __init__(self) -> None:
        self.rows: list[Rows] = []

    def merge(self, rows: Rows, options: object) -> Tensor:
        self.rows.append(rows)
        assert options == "options"
        return rows.models[:, 0]


@pytest.mark.parametrize("own_in_merge", [True, False])
def test_what_a_rule_is_shown_before_a_run(own_in_merge: bool) -> None:
    """Three merges of four models, their own first or not at all: together, then one by one."""
    rule = Shown()
    try_out(Merging(rule, "options", ("conv",)), LAYOUT, own_in_merge)  # type: ignore[arg-type]
    first = (lambda me: me) if own_in_merge else (lambda me: 3)
    merges = [Merge(me, (first(me), 4, 5, 6), own_in_merge, (10 + first(me), 14, 15, 16)) for me in range(3)]
    assert [rows.merges for rows in rule.rows] == [merges, merges[:1], merges[1:2], merges[2:]]
    together = rule.rows[0]
    assert together.models.shape == (3, 4, 6)
    assert len(set(together.models.flatten().tolist())) == 72
    assert together.received.shape == (3, 3 if own_in_merge else 4, 6)
    assert torch.equal(together.own, together.models[:, 0]) == own_in_merge
    for i, alone in enumerate(rule.rows[1:]):
        assert alone.segment == ""
        assert torch.equal(alone.own[0], together.own[i])
        assert torch.equal(alone.models[0], together.models[i])


def test_what_a_linear_rule_is_told_before_a_run() -> None:
    told: list[object] = []

    class Told(BodyAndHead):
        def weights(self, merge: Merge, segment: str, options: object) -> None:
            told.append((merge.receiver, merge.senders, segment, options))

    try_out(Merging(Told(), "options"), LAYOUT)  # type: ignore[arg-type]
    assert told == [(me, (me, 4, 5, 6), segment, "options") for segment in ("body", "head") for me in range(3)]


def test_weights_are_looked_at_in_each_merge() -> None:
    """A rule that passed the trial may say something else later."""
    with pytest.raises(SettingsError, match="'my-rule' says 4 weights for 2 models"):
        merged(Merging(OwnWeights(0.25, 0.25, 0.25, 0.25)))


def test_what_may_be_computed_together_and_what_the_engine_knows() -> None:
    plain, other = Merging(Mean()), Merging(Median())
    some = Merging(Mean(), only=("conv",))
    clipped = [Merging(Clipped(), ClippedSettings(clip_radius=radius)) for radius in (1.0, 2.0)]
    assert plain.is_plain
    assert not any(how.is_plain for how in (other, some, *clipped))
    assert len({how.key for how in (plain, other, some, *clipped)}) == 5
    assert plain.key == Merging(Mean()).key


def test_weights_of_a_method_need_a_rule_that_heeds_them() -> None:
    with pytest.raises(SettingsError, match="merge = 'median' knows no weights, but a method says"):
        check_said(Merging(Median()), "a method", 1, (0.5, 0.5), ())
    check_said(Merging(Mean()), "a method", 1, (0.5, 0.5), (("conv", (0.25, 0.75)),))
    with pytest.raises(SettingsError, match=r"weights that sum to 1\.25"):
        check_said(Merging(Mean()), "a method", 1, None, (("conv", (0.5, 0.75)),))


def test_merge_only_names_tensors_that_are_there() -> None:
    with pytest.raises(SettingsError, match="merge_only names 'cnov', but no tensor's name begins with it"):
        try_out(Merging(Mean(), only=("conv", "cnov")), LAYOUT)
