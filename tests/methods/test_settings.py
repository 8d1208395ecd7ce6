# SPDX-License-Identifier: Apache-2.0
"""What methods make of settings, once, and which settings they refuse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pens.errors import SettingsError
from pens.methods.method import Method, Participants
from pens.methods.names import check_methods, parse_methods
from pens.methods.spec import RunSpec
from pens.partitions.partition import partition_of
from pens.protocol.gossiping import Gossiping
from pens.protocol.plan import Plan
from pens.settings.tree import RunSettings, Settings
from tests.methods.specs import ALL, IN_STEP, made_of, spec_of


def test_methods_are_known_and_named_once() -> None:
    assert parse_methods("pens, random") == ("pens", "random")
    with pytest.raises(SettingsError, match="did you mean 'oracle'"):
        parse_methods("oracel")
    with pytest.raises(SettingsError, match="listed twice"):
        parse_methods("pens,pens")
    with pytest.raises(SettingsError, match="no method"):
        parse_methods("")


def test_impossible_combinations_are_refused_with_value_bound_and_remedy() -> None:
    def check(**values: object) -> None:
        settings = Settings().replace({"n_peers": 2, **values})
        partition_of(settings).check(settings)
        clusters = len(settings.scenario.rotations)
        methods = [name for name in ALL if name not in IN_STEP] if {"schedule", "pull_from"} & {*values} else ALL
        check_methods(settings, methods, Participants(settings.scenario.peers, settings.scenario.peers // clusters))

    check(peers=20)
    check(peers=20, admit=True, schedule="async")
    check(peers=20, pull_from="latest")
    with pytest.raises(SettingsError, match=r"pull_from = latest, but schedule = async: .*: set schedule"):
        check(peers=20, pull_from="latest", schedule="async")
    with pytest.raises(SettingsError, match=r"admit = true, but schedule = rounds: .*: set schedule = async or admit"):
        check(peers=20, admit=True)
    check_methods(Settings().replace({"admit": True}), ["local"], Participants(20, 10))
    check(peers=20, score="cosine-update", init="common")
    with pytest.raises(SettingsError, match=r"score = cosine-update, but init = independent: .*: set init = common"):
        check(peers=20, score="cosine-update")
    with pytest.raises(SettingsError, match="n_sampled = 10, but each peer can hear at most 5 others: lower it or add"):
        check(peers=6)
    with pytest.raises(SettingsError, match="m = 4, but only n_sampled = 3"):
        check(n_sampled=3, m=4)
    with pytest.raises(SettingsError, match="m = n_sampled = 3"):
        check(n_sampled=3, m=3)
    with pytest.raises(SettingsError, match=r"peers = 21, but 2 rotations .* use 20 or 22"):
        check(peers=21)
    with pytest.raises(SettingsError, match="n_peers = 20, but each peer can hear at most 11"):
        check(peers=12, n_peers=20)
    with pytest.raises(SettingsError, match="oracle"):
        check(peers=4, rotations=[0, 90, 180, 270], n_sampled=3)
    with pytest.raises(SettingsError, match="use at least 3 peers"):
        check_methods(Settings().replace({"n_sampled": 1, "m": 1}), ["pens"], Participants(2, 1))
    with pytest.raises(
        SettingsError,
        match=r"oracle is told .* has no clusters: omit oracle",
    ):
        check_methods(Settings(), ["oracle"], Participants(20, None))


@pytest.mark.parametrize(
    ("method", "peers", "smallest", "allowed", "refused"),
    [
        ("random", 4, 2, {"n_peers": 3}, {"n_peers": 4}),
        ("random+", 4, 2, {"n_peers": 3}, {"n_peers": 4}),
        ("pens", 4, 2, {"n_sampled": 3}, {"n_sampled": 4}),
        ("pens", 9, 2, {"m": 2}, {"m": 3}),
        ("pens+", 9, 2, {"m": 2}, {"m": 4}),
        ("pens", 9, 2, {"admit": True, "schedule": "async"}, {"admit": True}),
        ("local", 9, 2, {"tested": "last"}, {"tested": "last", "validated": "merged"}),
        ("random", 9, 2, {"tested": "last"}, {"tested": "last", "validated": "merged"}),
        ("random+", 9, 2, {}, {"tested": "last"}),
        ("pens+", 9, 2, {}, {"tested": "last"}),
    ],
)
def test_what_is_just_allowed_and_what_is_just_refused(
    method: str, peers: int, smallest: int, allowed: dict[str, object], refused: dict[str, object]
) -> None:
    """Peers have 3 or 8 others, m = 2 of n_sampled = 3 models are chosen, and n_peers = 2 are merged at random."""
    settings = Settings().replace({"n_sampled": 3, "m": 2, "n_peers": 2})
    check_methods(settings.replace(allowed), [method], Participants(peers, smallest))
    with pytest.raises(SettingsError, match=f"^{next(iter(refused))} = "):
        check_methods(settings.replace(refused), [method], Participants(peers, smallest))


def test_methods_need_only_what_they_use() -> None:
    """`pens` compares models, so that three peers are the fewest; the oracle needs two in a cluster; others do not care
    about m, n_sampled, n_peers, admit and clusters that they do not use."""
    few = Settings().replace({"n_sampled": 2, "m": 1})
    check_methods(few, ["pens"], Participants(3, 1))
    with pytest.raises(SettingsError, match="2 peers hear 1 other: use at least 3 peers"):
        check_methods(few.replace({"n_sampled": 1}), ["pens"], Participants(2, 1))
    check_methods(few, ["oracle", "oracle+"], Participants(4, 2))
    for method in ("oracle", "oracle+"):
        with pytest.raises(SettingsError, match="leaves some alone in their cluster"):
            check_methods(few, [method], Participants(4, 1))
    odd = Settings().replace({"n_sampled": 9, "m": 12, "admit": True, "n_peers": 1})
    check_methods(odd, ["random", "random+", "local", "central"], Participants(2, 1))
    check_methods(odd.replace({"m": 9, "n_peers": 99}), ["oracle", "local", "central"], Participants(4, 2))


def test_pens_plus_changes_settings_and_the_papers_methods_do_not() -> None:
    settings = Settings().replace({"m": 3})
    levels = {"neighbours_by": "levels", "validated": "either", "alone_rounds": 20}
    for init, step2_model in (("common", "first"), ("independent", "best")):
        changed = settings.replace({"init": init})
        assert same(made_of(changed, "pens+"), changed.replace({**levels, "step2_model": step2_model}))
    for method in ("random+", "oracle+"):
        assert same(made_of(settings, method), settings.replace({"validated": "either"}))
    for method in ("pens", "random", "local", "oracle"):
        assert same(made_of(settings, method), settings)


def test_one_section_says_for_central_what_others_say_for_the_others() -> None:
    """Section 5.3: rounds 11, epochs 12, batches of 13, stopping after 14 updates, judged on the mean of 15."""
    central = {"rounds": 11, "epochs": 12, "batch_size": 13, "patience": 14, "window": 15}
    settings = Settings().replace({f"central_{key}": value for key, value in central.items()})
    assert same(made_of(settings, "central"), settings.replace(central))


def same(made: RunSettings, settings: Settings) -> bool:
    return made.model_dump() == settings.model_dump()


def test_a_method_is_applied_once() -> None:
    """What it made is no `Settings`: neither mypy nor a run lets a method have it again."""
    made = spec_of("pens+", Settings())
    assert not isinstance(made.settings, Settings)
    assert not hasattr(made.settings, "replace")
    with pytest.raises(TypeError, match="RunSettings in place of Settings: a method is applied once"):
        RunSpec.of(made.method, made.settings, 0)  # type: ignore[arg-type]


class Forgetful(Method):
    name = "forgetful"

    def resolve(self, settings: Settings) -> Settings:
        settings.replace({"lr": 0.5})
        return None  # type: ignore[return-value]


class Misspelt(Method):
    name = "misspelt"

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        return replace(super().plan(settings, train, val, num_peers), behaviours={"gosiping": Gossiping})


def test_a_behaviour_for_a_phase_that_it_is_not_for_is_refused() -> None:
    """Else nobody would ever enter it, and the run would be plain gossip."""
    with pytest.raises(SettingsError, match="a behaviour for the phase 'gosiping', which is for 'gossiping'"):
        RunSpec.of(Misspelt(), Settings(), 0).plan(9, 5, 6)


def test_a_method_that_makes_nothing_of_the_settings_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'forgetful': its resolve returned a NoneType: return pens\.Settings"):
        RunSpec.of(Forgetful(), Settings(), 0)
