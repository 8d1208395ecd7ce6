# SPDX-License-Identifier: Apache-2.0
"""What each method says of itself (paper, section 5.3; docs/decisions/0019), which all others ask it for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pens.methods.method import NEUTRAL, Absent, Method
from pens.methods.names import alone, find_method, in_order, selecting, settings_without_effect
from pens.parts import METHODS
from pens.report.svg import LIGHT

PARTIAL = {"deprl", "fedrep", "facade"}
"""Methods whose peers share a part of the network."""
GOSSIP = {
    *("pens", "pens+", "random", "random+", "oracle", "oracle+", "dac", "dac-var", "dpsgd", "el", "fedavg"),
    *("fedfomo", "ifca", "fedbn"),
    *PARTIAL,
}
TRAITS: dict[str, tuple[Callable[[Method], object], set[str]]] = {
    "selects": (lambda m: m.selects, {"pens", "pens+"}),
    "merges": (lambda m: m.merges, GOSSIP),
    "pools_data": (lambda m: m.pools_data, {"central"}),
    "told_clusters": (lambda m: m.told_clusters, {"oracle", "oracle+"}),
    "networked": (
        lambda m: m.networked,
        {"pens", "pens+", "random", "random+", "dac", "dac-var", "fedfomo", "deprl", "facade"},
    ),
    "keeps_moments": (lambda m: m.keeps_moments, {"local", "central"}),
    "scores": (lambda m: m.scores or m.selects, {"pens", "pens+", "dac", "dac-var", "fedfomo", "ifca"}),
    "says_weights": (lambda m: m.says_weights, {"dpsgd", "facade", "fedfomo"}),
    "in_step": (lambda m: m.in_step, {"dpsgd", "el", "fedavg", "fedrep", "ifca", "fedbn"}),
    "has a server": (lambda m: m.num_servers == 1, {"fedavg", "fedrep", "fedbn"}),
    "has servers": (lambda m: m.num_servers > 0, {"fedavg", "fedrep", "ifca", "fedbn"}),
    "needs_batch_norm": (lambda m: m.needs_batch_norm, {"fedbn"}),
    "attainable": (lambda m: m.attainable, {*GOSSIP, "local"} - {"oracle", "oracle+"}),
    "trains_alone": (lambda m: m.trains_alone, {"local"}),
    "is_baseline": (lambda m: m.is_baseline, {"random"}),
    "plus_of": (lambda m: m.plus_of == m.name.removesuffix("+") != m.name, {"pens+", "random+", "oracle+"}),
    "one learner": (lambda m: m.num_learners(7) == 1, {"central"}),
    "seven learners": (lambda m: m.num_learners(7) == 7, {*GOSSIP, "local"}),
}


@pytest.mark.parametrize("trait", TRAITS)
def test_what_is_true_of_which_methods(trait: str) -> None:
    of, expected = TRAITS[trait]
    assert {name for name in METHODS.built_in if of(find_method(name)) is True} == expected


def test_each_is_called_as_the_table_says_and_can_be_told_apart() -> None:
    found = [find_method(name) for name in METHODS.built_in]
    assert tuple(method.name for method in found) == METHODS.built_in
    assert all(method.about for method in found)
    for place in (0, 1):
        assert len({method.colours[place] for method in found} | {NEUTRAL[place]}) == len(found) + 1
    assert not {method.colours[0] for method in found} & set(LIGHT.values())


def test_a_method_that_is_not_installed_has_a_name_and_nothing_else() -> None:
    gone = Absent("gone")
    assert (gone.name, gone.colours, gone.selects, gone.pools_data, gone.plus_of) == (
        "gone",
        NEUTRAL,
        False,
        False,
        None,
    )
    assert "not installed" in gone.about


def test_methods_are_listed_in_one_order() -> None:
    assert in_order(["gone", "central", "b", "pens+", "pens", "pens"]) == ["pens", "pens+", "central", "b", "gone"]
    assert selecting(["oracle", "pens+", "gone", "pens"]) == ["pens", "pens+"]
    assert alone().name == "local"


def test_sections_count_for_their_own_methods_only() -> None:
    """`central_rounds` is of [central], `m` of [pens]; `rounds` is everybody's."""
    told = {names: settings_without_effect(names) & {"m", "central_rounds", "rounds"} for names in (
        ("random",), ("pens+",), ("central",), ("central", "pens", "local")
    )}  # fmt: skip
    assert list(told.values()) == [{"m", "central_rounds"}, {"central_rounds"}, {"m"}, set()]
