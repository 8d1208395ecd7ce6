# SPDX-License-Identifier: Apache-2.0
"""Which numbers are merged, with which weights, how many at once; and what is told of a rule that does it wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
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
from pens.merging.merger import RowMerge, merge_rows, merged_names, own_weights, pieces
from pens.merging.rule import LinearRule, Merge, MergeRule, Merging, Rows, check_said
from pens.merging.trial import try_out
from pens.merging.weighted import Weighted

CPU = torch.device("cpu")
LAYOUT = Layout.stored(
    {"conv.weight": torch.Size([2]), "conv.bias": torch.Size([1]), "head.weight": torch.Size([2])},
    {"conv.running": torch.Size([1]), "head.frozen": torch.Size([1])},
)
"""A row: conv.weight 0 1, conv.bias 2, head.weight 3 4, and of what is not trained conv.running 5, head.frozen 6."""
WITH_BATCH_NORM = replace(LAYOUT, batch_norm=frozenset({"conv.bias", "conv.running"}))
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
        (("conv.weight", "head.frozen"), [4, 8, 0, 0, 0, 0, 28]),
    ],
)
def test_what_is_not_merged_keeps_the_own_models_values(
    rule: MergeRule, only: tuple[str, ...], expected: list[float]
) -> None:
    assert merged(Merging(rule, only=only)) == expected
    assert merged(Merging(rule, only=only), replace(ABOUT, senders=(1,), own_in_merge=False)) == expected


@pytest.mark.parametrize("rule", [Mean(), Median()])
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, [4, 8, 0, 16, 20, 0, 28]),
        ({"only": ("conv",)}, [4, 8, 0, 0, 0, 0, 0]),
        ({"only": ("conv.running",)}, [0] * 7),
        ({"keeps_batch_norm": False}, [4, 8, 12, 16, 20, 24, 28]),
    ],
)
def test_each_peer_keeps_its_own_batch_norm_unless_it_is_to_be_merged(
    rule: MergeRule, how: dict[str, Any], expected: list[float]
) -> None:
    stack = ModelStack(7, CPU)
    rows = stack.add(torch.tensor([OWN, OTHER]))
    for about in (ABOUT, replace(ABOUT, senders=(1,), own_in_merge=False)):
        one = RowMerge(rows, rows[0], about)
        assert merge_rows(stack, WITH_BATCH_NORM, Merging(rule, **how), [one])[0].tolist() == expected


@pytest.mark.parametrize("rule", [Mean(), Median()])
@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (("auto",), [4, 8, 12, 0, 0, 24, 0]),  # the last layer with its frozen part
        (("conv.weight", "head.frozen"), [0, 0, 12, 16, 20, 24, 0]),
    ],
)
def test_what_a_method_keeps_stays_each_peers_own_and_is_not_sent(
    rule: MergeRule, own: tuple[str, ...], expected: list[float]
) -> None:
    how = Merging(rule, own=own)
    assert merged(how) == expected
    assert not how.is_plain(LAYOUT)
    assert how.key != Merging(rule).key
    sent = [place for place in (*LAYOUT.trained, *LAYOUT.kept) if place.name in merged_names(LAYOUT, how)]
    assert {number for place in sent for number in range(place.start, place.stop)} == {
        number for number, value in enumerate(expected) if value
    }


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (("heads",), "the method keeps as each peer's own 'heads', but no tensor's name begins with it"),
        (("conv", "auto"), "the method keeps conv, auto as each peer's own, which is all that could be merged"),
    ],
)
def test_a_method_that_keeps_nothing_or_everything_is_refused_before_a_run(own: tuple[str, ...], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        try_out(Merging(Mean(), own=own), LAYOUT)


class BodyAndHead(LinearRule):
    """Halves of the body, a quarter of the other's head; the rest is nobody's."""

    name = "body-and-head"

    def segments(self, options: object) -> Mapping[str, Sequence[str]]:
        return {"body": ["conv.weight", "conv.running"], "head": ["head"]}

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
    assert merged(Merging(BodyAndHead(), only=("head.weight",))) == [0, 0, 0, 8, 10, 0, 0]


def test_the_longest_beginning_counts_and_ranges_are_as_long_as_can_be() -> None:
    names = LAYOUT.places_of(["conv", "conv.bias", "", "conv.b", "hea"])
    assert names == {
        "conv.weight": "conv", "conv.bias": "conv.bias", "head.weight": "", "conv.running": "conv", "head.frozen": "",
    }  # fmt: skip
    assert LAYOUT.ranges({"conv.weight", "conv.bias", "head.frozen"}) == (slice(0, 3), slice(6, 7))
    assert [piece.ranges for piece in pieces(LAYOUT, Merging(Mean()), ())] == [(slice(0, 7),)]


def test_a_method_says_weights_for_some_parameters() -> None:
    """A quarter of the other's head, an eighth of its bias, and all of the rest, or what the rule says."""
    told = (("head", (0.75, 0.25)), ("conv.bias", (0.875, 0.125)))
    assert merged(Merging(Mean()), replace(ABOUT, weights=(0.0, 1.0)), segment_weights=told) == [
        8, 16, 3, 8, 10, 48, 14,
    ]  # fmt: skip
    assert merged(Merging(Mean()), segment_weights=told) == [4, 8, 3, 8, 10, 24, 14]
    assert merged(Merging(Mean(), only=("conv",)), segment_weights=told[1:]) == [4, 8, 3, 0, 0, 24, 0]
    with pytest.raises(SettingsError, match="says weights for 'head', but merge_only leaves it out"):
        merged(Merging(Mean(), only=("conv",)), segment_weights=told)
    how = Merging(BodyAndHead())
    with pytest.raises(SettingsError, match=r"'conv\.bias', but merge rule 'body-and-head' has no segment there"):
        merged(how, segment_weights=told)
    assert merged(how, segment_weights=(("conv.weight", (0.0, 1.0)),)) == [8, 16, 0, 8, 10, 24, 14]


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


class Nothing(MergeRule):
    """Likewise."""

    name = "my-rule"


class OwnWeights(LinearRule):
    """Likewise."""

    name = "my-rule"

    def __init__(self, *weights: Any) -> None:
        self.said = weights

    def weights(self, merge: Merge, segment: str, options: object) -> Sequence[float]:
        return self.said


class Elsewhere(Mean):
    """A rule for another network."""

    name = "my-rule"

    def __init__(self, *begins: str) -> None:
        self.begins = begins

    def segments(self, options: object) -> Mapping[str, Sequence[str]]:
        return {"body": self.begins}


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        (Own(lambda rows: rows.models), r"returned a tensor of shape \[3, 2, 6\]: return one row .* \[3, 6\]"),
        (Own(None), "its merge returned None: return one row for each merge"),
        (Own(lambda rows: rows.own.numpy()), "an ndarray: return one row for each merge, a tensor of shape"),
        (Own(lambda rows: rows.own.half()), r"numbers of the type torch\.float16: return torch\.float32"),
        (Own(lambda rows: rows.own * torch.nan), "its merge returned numbers that are not finite"),
        (Own(lambda rows: rows.own.index_fill(1, torch.tensor([2]), torch.inf)), "numbers that are not finite"),
        (Own(lambda rows: rows.own / 0), "its merge returned numbers that are not finite"),
        (Own(lambda rows: rows.models.mean((0, 1)).expand_as(rows.own)), "lets a merge depend on those beside it"),
        (Own(lambda rows: rows.nothing), r"its merge failed: AttributeError.* \(/.*test_merger\.py, line"),
        (Own(lambda rows: rows.models.topk(4, 1).values.mean(1)), "its merge failed: .*with 1 received model and"),
        (Own(lambda rows: rows.own + torch.randn_like(rows.own)), "gives another model when it is asked again"),
        (Own(lambda rows: rows.models.sum(1)), "makes another model of models that are all equal"),
        (Own(lambda rows: rows.own * 0), "makes another model of models that are all equal"),
        (Own(lambda rows: rows.models.mul_(0).mean(1)), "makes another model of models that are all equal"),
        (Nothing(), "has no method `merge`, and is no LinearRule"),
        (OwnWeights(0.5, 0.5, 0, 0), "says 4 weights for 2 models"),
        (OwnWeights(1, 1), r"weights that sum to 2: divide them by their sum, so that it is 1 \(tried before the run"),
        (OwnWeights(0.1, 0.1), "says weights that sum to 0.2: divide them by their sum"),
        (OwnWeights(float("nan"), 0), "says a weight that is nan: say finite numbers"),
        (OwnWeights("a", "b"), r"says the weights \('a', 'b'\): say a list of numbers"),
        (Elsewhere("convolution"), "has a segment 'convolution', but no tensor's name .* has conv.weight"),
        (Elsewhere("conv.w"), "has a segment 'conv.w', but no tensor's name begins with it, up to a dot or to its end"),
    ],
)  # fmt: skip
def test_a_rule_that_does_it_wrong_is_told_by_name(rule: MergeRule, reason: str) -> None:
    with pytest.raises(SettingsError, match=f"^merge rule 'my-rule'.*{reason}"):
        try_out(Merging(rule), LAYOUT)


class Later(LinearRule):
    """Says what a function makes of the number of models."""

    name = "my-rule"

    def __init__(self, say: Callable[[int], Any]) -> None:
        self.say = say

    def weights(self, merge: Merge, segment: str, options: object) -> Sequence[float]:
        found: Sequence[float] = self.say(len(merge.senders))
        return found


def test_weights_of_any_type_become_plain_numbers() -> None:
    for say in (
        lambda n: np.full(n, 1 / n),
        lambda n: torch.full((n,), 1 / n),
        lambda n: [np.float32(1 / n)] * n,
        lambda n: (Fraction(1, n),) * n,
    ):
        try_out(Merging(Later(say)), LAYOUT)
        assert merged(Merging(Later(say))) == merged(Merging(Mean()))
    said = own_weights(Merging(Later(lambda n: np.full(n, 1 / n))), ABOUT, "")
    assert said == (0.5, 0.5)
    assert {type(weight) for weight in said} == {float}


@pytest.mark.parametrize(
    ("say", "reason"),
    [
        (lambda n: "ab", "says the weights 'ab': say a list of numbers, one for each model"),
        (lambda n: 3, "says the weights 3: say a list"),
        (lambda n: {0: 1.0}, "say a list of numbers"),
        (lambda n: torch.ones(n, 2), "say a list of numbers"),
        (lambda n: 1 // 0, r"its weights failed: ZeroDivisionError.*test_merger\.py, line"),
        (
            lambda n: [0.5] * n if n > 3 else [1 / n] * n,
            "weights that sum to 2: .*with 3 received models and the own one",
        ),
        (lambda n: np.random.default_rng().dirichlet(np.ones(n)), "gives other weights when it is asked again"),
    ],
)
def test_what_are_no_weights_is_told(say: Callable[[int], Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=f"^merge rule 'my-rule'.*{reason}"):
        try_out(Merging(Later(say)), LAYOUT)


def test_a_rule_that_says_falsely_that_it_looks_at_single_numbers_is_refused() -> None:
    def signs(rows: Rows) -> Tensor:
        return rows.models.mean(1) + (rows.models.mean((1, 2)) - rows.own.mean(1))[:, None]

    rule = Own(signs)
    try_out(Merging(rule), LAYOUT)
    rule.coordinatewise = True  # type: ignore[misc]
    with pytest.raises(SettingsError, match=r"'my-rule' says coordinatewise = True, but .*: leave coordinatewise out"):
        try_out(Merging(rule), LAYOUT)


@pytest.mark.parametrize(
    "said", [{"head": "head"}, ["head"], {"head": [1]}, {"head": ["head"], "all": ["head"]}, None], ids=str
)
def test_segments_that_are_none_are_refused(said: Any) -> None:
    rule = Elsewhere()
    rule.segments = lambda options: said  # type: ignore[method-assign]
    with pytest.raises(
        SettingsError, match=r"'my-rule'(: its segments returned .*lists of beginnings| names 'head' in two segments)"
    ):
        try_out(Merging(rule), LAYOUT)


def test_what_leaves_nothing_to_merge_is_refused() -> None:
    with pytest.raises(SettingsError, match="segments of merge rule 'my-rule' have no tensor in common"):
        try_out(Merging(Elsewhere("head"), only=("conv",)), LAYOUT)


def test_an_error_in_a_run_names_the_rule_and_its_line() -> None:
    """A rule that passed the trial may fail later."""
    with pytest.raises(
        SettingsError, match=r"^merge rule 'my-rule': its merge failed: ZeroDivisionError.* line \d+\)$"
    ):
        merged(Merging(Own(lambda rows: 1 // 0)))


@pytest.mark.parametrize("own_in_merge", [True, False])
@pytest.mark.parametrize("rule", [Mean(), Median(), Own(lambda rows: rows.models[:, -1].double()), Elsewhere("conv")])
def test_a_rule_that_does_it_right_passes(rule: MergeRule, own_in_merge: bool) -> None:
    try_out(Merging(rule, only=("conv",)), LAYOUT, own_in_merge)


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
    """Three merges of 1, 2, 3 and 5 received models, with their own first or not at all: together, once more, one by
    one, and as equal models."""
    rule = Shown()
    try_out(Merging(rule, "options", ("conv",)), LAYOUT, own_in_merge)  # type: ignore[arg-type]
    assert [len(rows.merges) for rows in rule.rows] == [3, 3, 1, 1, 1, 3] * 4
    for count, shown in zip((1, 2, 3, 5), (rule.rows[i : i + 6] for i in (0, 6, 12, 18)), strict=True):
        together, again, *alone, equal = shown
        senders = [(*((me,) if own_in_merge else ()), *range(3, 3 + count)) for me in range(3)]
        merges = [Merge(me, of, own_in_merge, tuple(10 + s for s in of)) for me, of in enumerate(senders)]
        assert together.merges == again.merges == merges
        assert [rows.merges for rows in alone] == [merges[:1], merges[1:2], merges[2:]]
        assert together.received.shape == (3, count, 6)
        assert len(set(together.models.flatten().tolist())) == 18 * (count + own_in_merge)
        assert torch.equal(together.own, together.models[:, 0]) == own_in_merge
        assert torch.equal(equal.models, equal.own[:1].expand_as(equal.models.transpose(0, 1)).transpose(0, 1))
        for i, one in enumerate(alone):
            assert one.segment == ""
            assert torch.equal(one.own[0], together.own[i])
            assert torch.equal(one.models[0], together.models[i])


def test_what_a_linear_rule_is_told_before_a_run() -> None:
    told: list[object] = []

    class Told(BodyAndHead):
        def weights(self, merge: Merge, segment: str, options: object) -> None:
            told.append((merge.receiver, merge.senders, segment, options, merge.samples is None))

    for knows in (True, False):
        try_out(Merging(Told(), "options"), LAYOUT, knows_samples=knows)  # type: ignore[arg-type]
        assert set(told) == {
            (me, (me, *range(3, 3 + count)), segment, "options", not knows)
            for segment in ("body", "head") for me in range(3) for count in (1, 2, 3, 5)
        }  # fmt: skip
        told.clear()


def test_weights_are_looked_at_in_each_merge() -> None:
    """A rule that passed the trial may say something else later."""
    with pytest.raises(SettingsError, match="says 4 weights for 2 models"):
        merged(Merging(OwnWeights(0.25, 0.25, 0.25, 0.25)))


def test_what_may_be_computed_together_and_what_the_engine_knows() -> None:
    plain, other = Merging(Mean()), Merging(Median())
    some = Merging(Mean(), only=("conv",))
    clipped = [Merging(Clipped(), ClippedSettings(clip_radius=radius)) for radius in (1.0, 2.0)]
    merges_all = Merging(Mean(), keeps_batch_norm=False)
    assert plain.is_plain(LAYOUT)
    assert not any(how.is_plain(LAYOUT) for how in (other, some, *clipped))
    assert [how.is_plain(WITH_BATCH_NORM) for how in (plain, merges_all)] == [False, True]
    assert len({how.key for how in (plain, other, some, *clipped, merges_all)}) == 6
    assert plain.key == Merging(Mean()).key


def test_weights_of_a_method_need_a_rule_that_heeds_them() -> None:
    with pytest.raises(SettingsError, match="merge = 'median' knows no weights, but a method says"):
        check_said(Merging(Median()), "a method", 1, (0.5, 0.5), ())
    check_said(Merging(Mean()), "a method", 1, (0.5, 0.5), (("conv", (0.25, 0.75)),))
    check_said(Merging(BodyAndHead()), "a method", 1, None, (("conv", (0.25, 0.75)),))
    for rule, why in (
        (Weighted(), "merge = 'weighted' has weights of its own"),
        (BodyAndHead(), "has weights of its own"),
    ):
        with pytest.raises(
            SettingsError, match=f"{why}, but a method says how much each model counts: set merge = 'mean'"
        ):
            check_said(Merging(rule), "a method", 1, (0.5, 0.5), ())
    with pytest.raises(SettingsError, match="knows no weights"):
        check_said(Merging(Median()), "a method", 1, None, (("conv", (0.25, 0.75)),))
    with pytest.raises(SettingsError, match=r"weights that sum to 1\.25"):
        check_said(Merging(Mean()), "a method", 1, None, (("conv", (0.5, 0.75)),))


def test_merge_only_names_tensors_that_are_there() -> None:
    with pytest.raises(
        SettingsError, match="merge_only names 'cnov', but no tensor's name begins with it, up to a dot or to its end"
    ):
        try_out(Merging(Mean(), only=("conv", "cnov")), LAYOUT)


def test_prefixes_of_a_method_are_looked_at_before_a_run() -> None:
    try_out(Merging(Mean()), LAYOUT, prefixes=("head", "conv.bias"))
    with pytest.raises(SettingsError, match="the method says weights for 'heads', but no tensor's name begins with it"):
        try_out(Merging(Mean()), LAYOUT, prefixes=("heads",))


def test_names_are_divided_at_dots() -> None:
    layout = Layout.stored({f"{i}.weight": torch.Size([1]) for i in (1, 10, 11)}, {})
    assert [list(layout.places_of([prefix])) for prefix in ("1", "1.", "1.w")] == [["1.weight"], ["1.weight"], []]
    assert merged_names(layout, Merging(Mean(), only=("10", "1.weight"))) == ["1.weight", "10.weight"]
