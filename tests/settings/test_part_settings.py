# SPDX-License-Identifier: Apache-2.0
"""A part's settings: a section of their own, which is typed, found, stored and explained as ours are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from pens import parts
from pens.errors import SettingsError
from pens.parts import Registry
from pens.settings.catalogue import as_toml, find
from pens.settings.keys import flat_values
from pens.settings.reading import parse_assignments, parse_settings
from pens.settings.section import Count, NotNegative, Section
from pens.settings.tree import Settings


class HeatSettings(Section):
    """How hot it gets."""

    title: ClassVar[str] = "heat"
    tau: NotNegative = 30.0
    """The temperature."""
    steps: tuple[int, ...] = (1, 2)
    """When it rises."""


class ColdSettings(Section):
    """How cold it gets."""

    title: ClassVar[str] = "cold"
    steps: Count = 3
    """How often it falls."""


class Hot:
    name = "hot"
    section = HeatSettings


class Hotter(Hot):
    name = "hotter"


class Cold:
    name = "cold"
    section = ColdSettings


class BareSettings(Section):
    title: ClassVar[str] = "bare"
    form: Any = 1
    table: dict[str, int] = {}  # noqa: RUF012


class Bare:
    name = "bare"
    section = BareSettings


class Odd:
    name = "odd"
    section = type("Other", (ColdSettings,), {"__module__": __name__})


def offer(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    built_in = {name.lower(): f"{__name__}:{name}" for name in names}
    registry: Registry[object] = Registry("weather", "tests.weather", "builtins:object", built_in)
    monkeypatch.setattr(parts.sections, "__defaults__", ((registry,),))


@pytest.fixture(autouse=True)
def _weather(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "Hot", "Hotter", "Cold")


def test_a_section_has_its_defaults_until_it_is_set() -> None:
    assert Settings().section(HeatSettings) == HeatSettings()
    changed = Settings().replace({"tau": 2, "heat.steps": [4]})
    assert changed.section(HeatSettings) == HeatSettings(tau=2.0, steps=(4,))
    assert changed.section(ColdSettings) == ColdSettings()
    assert changed.replace({"peers": 8}).section(HeatSettings).tau == 2.0
    assert changed != Settings()


def test_what_is_set_is_stored_and_read_again() -> None:
    changed = Settings().replace({"tau": 2, "peers": 8})
    assert changed.model_dump(mode="json")["heat"] == {"tau": 2.0, "steps": [1, 2]}
    assert parse_settings(changed.model_dump(mode="json")) == changed
    assert flat_values(changed)["tau"] == 2.0
    assert "heat" not in Settings().model_dump()


def test_values_from_the_command_line_are_read_as_the_section_says() -> None:
    assert parse_assignments(["heat.steps=1", "cold.steps=1"]) == {"heat.steps": [1], "cold.steps": 1}
    changed = Settings().replace(parse_assignments(["heat.steps=1", "cold.steps=1"]))
    assert changed.section(HeatSettings).steps == (1,)
    assert changed.section(ColdSettings).steps == 1


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"steps": 1}, "steps is a setting of heat and cold: write heat.steps"),
        ({"method": "a"}, r"method is no setting: say it by `pens run --methods`, or by pens\.run\(…, methods=…\)"),
        ({"tua": 1}, "unknown setting 'tua', did you mean 'tau'"),
        ({"heat.tua": 1}, "unknown setting 'heat.tua', did you mean 'heat.tau'"),
        ({"tau": -1}, "tau = -1: input should be greater than or equal to 0"),
        ({"tau": 1, "heat.tau": 2}, "tau and heat.tau are the same setting"),
        ({"heat.peers": 1}, r"peers belongs to \[scenario\], not to \[heat\]"),
    ],
)
def test_what_is_wrong_is_refused_in_words(values: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        Settings().replace(values)
    with pytest.raises(SettingsError, match=r"unknown section \[haet\], did you mean 'heat'"):
        parse_settings({"haet": {"tau": 1}})


def test_two_sections_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "Cold", "Odd")
    with pytest.raises(SettingsError, match=r"two parts have a section \[cold\]: rename that of 'odd'"):
        Settings().replace({"cold.steps": 1})


def test_a_section_is_explained() -> None:
    (entry,) = find("tau")
    assert (entry.section, entry.about, entry.default) == ("heat", "The temperature.", 30.0)
    text = as_toml(Settings().replace({"tau": 2}))
    assert "[heat]" in text
    assert "tau = 2.0" in text
    assert "[cold]" in as_toml(Settings())


def test_settings_without_explanations_are_listed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "Hot", "Bare")
    form, table = find("bare")
    assert (form.key, form.about, form.allowed) == ("form", "", "any value")
    assert (table.key, table.about, table.allowed) == ("table", "", "a table")
    assert "[bare]" in as_toml(Settings())


def test_a_section_that_says_its_defaults_is_as_if_it_were_not_there() -> None:
    assert Settings().replace({"tau": 30}) == Settings()
    assert parse_settings({"heat": {"tau": 30}, "cold": {"steps": 3}}) == Settings()
    assert Settings().replace({"tau": 2}).replace({"tau": 30}) == Settings()


def test_what_is_wrong_in_a_section_names_the_setting() -> None:
    with pytest.raises(SettingsError, match=r"^tau = 'hot': input should be a valid number"):
        Settings().replace({"tau": "hot"})


# --- what parts declare -----------------------------------------------------------------------------------------------


class Empty(Section):
    """Without a default."""

    title: ClassVar[str] = "empty"
    size: Count
    """How large."""


class Outside(Section):
    """A default out of bounds."""

    title: ClassVar[str] = "outside"
    size: Count = 0
    """How large."""


class Taken(Section):
    """Named like one of ours."""

    title: ClassVar[str] = "gossip"


class Untitled(Section):
    """It has no name."""


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"section": "heat"}, r"its section is 'heat': give a class that is derived from pens\.Section"),
        ({"section": dict}, "its section is <class 'dict'>: give a class"),
        ({"section": Untitled}, "its section has no title"),
        ({"section": Taken}, "its section has the title 'gossip', and so has one of pens: give it another title"),
        ({"section": Empty}, r"the setting size of its section \[empty\] has no default: give it one"),
        ({"section": Outside}, r"the default of size in its section \[outside\] is 0: Input should be greater"),
        ({"keys": "test"}, "its keys are 'test': give a tuple of names"),
        ({"keys": ("test", 3)}, r"its keys are \('test', 3\): give a tuple of names"),
        ({"keys": ("rotation",)}, "keys name 'rotation', which is no setting of .scenario., did you mean 'rotations'"),
    ],
)
def test_what_a_part_declares_is_checked_where_it_is_found(
    declared: dict[str, object], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cold, "section", None)
    for name, value in declared.items():
        monkeypatch.setattr(Cold, name, value, raising=False)
    registry: Registry[object] = Registry("weather", "tests.weather", "builtins:object", {})
    with pytest.raises(SettingsError, match=f"weather '{__name__}:Cold': .*{reason}"):
        registry.find(f"{__name__}:Cold")


def test_a_section_that_no_part_has_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "Hot")
    with pytest.raises(SettingsError, match=r"settings\.section\(ColdSettings\): no part has this section, .*`section"):
        Settings().section(ColdSettings)


MINE = '''
import pens


class MineSettings(pens.Section):
    """Mine."""

    title = "mine"
    warmth: pens.Count = 2
    """How warm."""


class Mine(pens.Method):
    name = "mine"
    section = MineSettings


class Plain(pens.Method):
    name = "plain"


class Parting(pens.Partition):
    name, about, keys = "parting", "a test", ("test",)

    def build(self, dataset, settings, seed):
        raise NotImplementedError
'''


def test_what_a_part_that_is_given_by_reference_reads_is_explained(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for registry in (parts.METHODS, parts.PARTITIONS):
        for name in ("_found", "_references", "_given"):
            monkeypatch.setattr(registry, name, {})
    monkeypatch.setattr(parts.sections, "__defaults__", ((parts.METHODS, parts.PARTITIONS),))
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    (entry,) = find("mine.py:Mine")
    assert (entry.section, entry.key, entry.about, entry.default) == ("mine", "warmth", "How warm.", 2)
    assert [entry.key for entry in find("mine.py:Parting")] == ["test"]
    with pytest.raises(SettingsError, match="method 'plain' has no settings of its own"):
        find("mine.py:Plain")
    with pytest.raises(SettingsError, match=r"mine\.py:MineSettings is no part of pens: name a method, partition"):
        find("mine.py:MineSettings")
