# SPDX-License-Identifier: Apache-2.0
"""Law 10 for methods: one that is written outside the package runs, is shown, reported and resumed as ours are."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import pytest

import pens
from pens.command_line.main import main
from pens.errors import Interrupted, RunDirError, SettingsError
from pens.experiment.observer import Observer
from pens.methods.method import NEUTRAL, Method
from pens.methods.names import all_methods, in_order, method_of, parse_methods, references_of
from pens.parts import METHODS
from pens.settings.catalogue import find
from pens.settings.keys import flat_values
from pens.settings.section import UnknownSection
from pens.settings.tree import Settings
from pens.storage.runlog import ExperimentDir
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.experiment.test_experiment import same_result

OWN = '''
from pens import Method
from pens.settings.section import Count, Section
from pens.settings.tree import RunSettings
from pens.errors import SettingsError
from pens.methods.method import Participants


class NextSettings(Section):
    """Whom to talk to."""

    title = "next"
    stride: Count = 1
    """How many peers further by number."""


class Next(Method):
    name = "next"
    about = "gossip with the next peer by number"
    colours = ("#123456", "#abcdef")
    section = NextSettings
    networked = True

    def resolve(self, settings):
        return settings.replace({"n_peers": 1, "accept": "anyone"})

    def check(self, settings: RunSettings, who: Participants) -> None:
        stride = settings.section(NextSettings).stride
        if stride > who.num_others:
            raise SettingsError(f"stride = {stride}, but there are {who.num_others} others: lower it")

    def reachable(self, me, others, alike):
        return [next((peer for peer in others if peer > me), others[0])]
'''
QUICK = ["rounds=2", "peers=4", "train_per_peer=10", "val_per_peer=5", "test_samples=20", "next.stride=2"]


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets the methods that were given so far, as another process would not know them. Also after a test."""

    def forget() -> None:
        for name in ("_found", "_references", "_given"):
            monkeypatch.setattr(METHODS, name, {})

    forget()
    return forget


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


def change(file: Path, old: str, new: str) -> None:
    """Change a file, as another process would find it."""
    file.write_text(file.read_text().replace(old, new))
    for name in [name for name in sys.modules if name.startswith(f"pens_file_{file.stem}_")]:
        del sys.modules[name]


class StopOnce(Observer):
    def progressed(self, method: str, seed: int, fraction: float) -> None:
        raise Interrupted("enough")


def test_a_method_in_a_file_runs_is_shown_reported_and_explained_from_any_folder(
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    anew: Callable[[], None],
) -> None:
    def command(*words: object) -> str:
        anew()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        assert end.value.code in (0, None), printed
        return printed.out

    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    printed = command("run", "digits", "--methods", "mine.py:Next,local", "--set", *QUICK, "--out", "run")
    assert re.search(r"│ next +│", printed)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert re.search(r"│ next +│", command("show", run))
    command("report", run, "--out", "report.html")
    page = Path("report.html").read_text(encoding="utf-8")
    assert "gossip with the next peer by number" in page
    assert "--next: #123456" in page
    assert f"pens run digits --methods {file}:Next,local" in page
    assert "stride" in page
    assert "next runs with n_peers = 1 and accept = anyone, in place of the values below" in page
    assert any("#abcdef" in path.read_text() for path in Path("report_files").glob("*accuracy.svg"))
    record = ExperimentDir(run).read()
    assert record.methods == ("next", "local")
    assert record.references == {"next": f"{file}:Next"}
    (result, _) = ExperimentDir(run).results()
    pairs = zip(*(column.tolist() for column in (result.pairs.receiver, result.pairs.sender)), strict=True)
    assert list(pairs) == [(0, 1), (1, 2), (2, 3), (3, 0)]


def test_a_run_that_was_stopped_goes_on_with_its_own_method(
    file: Path, tmp_path: Path, anew: Callable[[], None]
) -> None:
    def arguments() -> dict[str, object]:
        return {"methods": f"{file}:Next", "model": TinyNet, "data": tiny_dataset(), "device": "cpu"}

    whole = pens.run(TINY, **arguments())  # type: ignore[arg-type]
    with pytest.raises(Interrupted):
        pens.run(TINY, **arguments(), out=tmp_path / "run", observer=StopOnce())  # type: ignore[arg-type]
    anew()
    resumed = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset(), device="cpu")
    same_result(resumed.runs[0], whole.runs[0])


def test_defaults_are_on_record_so_that_a_run_goes_on_with_those_that_it_began_with(
    file: Path, tmp_path: Path, anew: Callable[[], None]
) -> None:
    own = {"model": TinyNet, "data": tiny_dataset(), "device": "cpu"}
    with pytest.raises(Interrupted):
        pens.run(TINY, methods=f"{file}:Next", out=tmp_path / "run", observer=StopOnce(), **own)  # type: ignore[arg-type]
    assert json.loads((tmp_path / "run" / "experiment.json").read_text())["settings"]["next"] == {"stride": 1}
    assert flat_values(ExperimentDir(tmp_path / "run").read().settings)["stride"] == 1
    change(file, "stride: Count = 1", "stride: Count = 2  # more")
    anew()
    resumed = pens.resume(tmp_path / "run", **own)  # type: ignore[arg-type]
    assert flat_values(resumed.settings)["stride"] == 1
    section = method_of("next").section
    assert section is not None
    assert section().model_dump() == {"stride": 2}  # what it would be in a new run


class Noting(StopOnce):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def noted(self, message: str) -> None:
        self.notes.append(message)


def test_who_resumes_is_told_that_the_file_of_a_part_has_changed(
    file: Path, tmp_path: Path, anew: Callable[[], None]
) -> None:
    own = {"model": TinyNet, "data": tiny_dataset(), "device": "cpu"}
    with pytest.raises(Interrupted):
        pens.run(TINY, methods=f"{file}:Next", out=tmp_path / "run", observer=StopOnce(), **own)  # type: ignore[arg-type]
    for text, notes in (("", []), ("# more\n", ["the file of the method next has changed since the runs"])):
        change(file, file.read_text(), file.read_text() + text)
        anew()
        observer = Noting()
        with pytest.raises(Interrupted):
            pens.resume(tmp_path / "run", observer=observer, **own)  # type: ignore[arg-type]
        assert [note[:54] for note in observer.notes] == notes


def test_what_is_finished_is_shown_where_its_method_is_no_more(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], anew: Callable[[], None]
) -> None:
    values = {**TINY, "next.stride": 2}
    pens.run(
        "digits",
        methods=[f"{file}:Next", "local"],
        overrides=values,
        model=TinyNet,
        data=tiny_dataset(),
        out=tmp_path / "run",
    )
    file.unlink()
    anew()
    for words in (["show", tmp_path / "run"], ["report", tmp_path / "run", "--out", tmp_path / "report.html"]):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        assert end.value.code in (0, None)
    assert re.search(r"│ next +│", capsys.readouterr().out)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"--next: {NEUTRAL[0]}" in page
    assert "a method that is not installed here" in page
    record = ExperimentDir(tmp_path / "run").read()
    assert isinstance((record.settings.model_extra or {})["next"], UnknownSection)
    assert flat_values(record.settings)["next.stride"] == 2
    assert record.settings.replace({"lr": 0.5}).model_dump()["next"] == {"stride": 2}
    with pytest.raises(RunDirError, match=r"was run with the method 'next', which is not there any more: .*no file"):
        pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset())


def test_its_settings_are_checked_and_explained(file: Path) -> None:
    parse_methods(f"{file}:Next")
    assert find("stride")[0].about == "How many peers further by number."
    with pytest.raises(SettingsError, match="stride = 9, but there are 5 others: lower it"):
        pens.run({**TINY, "stride": 9}, methods="next", model=TinyNet, data=tiny_dataset())


class Quiet(Method):
    name = "quiet"


class Loud(Quiet):
    name = "loud"

    def __init__(self, volume: int) -> None:
        self.volume = volume


LOUD = Loud(3)


def test_classes_and_instances_are_given_from_python() -> None:
    assert parse_methods([Quiet, LOUD, "local"]) == ("quiet", "loud", "local")
    assert (method_of("loud"), type(method_of("quiet"))) == (LOUD, Quiet)
    here = Path(__file__).resolve()
    assert references_of(["quiet", "loud", "local"]) == {"quiet": f"{here}:Quiet", "loud": f"{here}:LOUD"}
    louder = Loud(4)
    assert parse_methods(louder) == ("loud",)
    assert method_of("loud") is louder
    assert references_of(["loud"]) == {}  # only this process has it
    assert in_order(["gone", "loud", "local", "pens"]) == ["pens", "local", "loud", "gone"]


def test_what_only_python_has_is_given_again_to_resume(tmp_path: Path, anew: Callable[[], None]) -> None:
    own = {"model": TinyNet, "data": tiny_dataset(), "device": "cpu"}
    with pytest.raises(Interrupted):
        pens.run(TINY, methods=Loud(1), out=tmp_path / "run", observer=StopOnce(), **own)  # type: ignore[arg-type]
    anew()
    with pytest.raises(RunDirError, match=r"unknown method 'loud'.* pens\.resume\(.*methods=\[…\]\)"):
        pens.resume(tmp_path / "run", **own)  # type: ignore[arg-type]
    assert len(pens.resume(tmp_path / "run", methods=[Loud(1)], **own).runs) == 1  # type: ignore[arg-type]


class Misnamed(Method):
    name = "central"


@pytest.mark.parametrize("wrong", [Misnamed, Misnamed(), Method, type("Bad", (Method,), {"name": "a/b"}), int, 3, []])
def test_what_is_no_method_of_its_own_is_refused(wrong: object) -> None:
    with pytest.raises(SettingsError):
        parse_methods([wrong] if wrong != [] else [])  # type: ignore[list-item]


def test_an_installed_package_offers_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"quiet": f"{__name__}:Quiet", "noisy": f"{__name__}:Quiet", "broken": "no.module:Thing"}
    found = EntryPoints(EntryPoint(name, value, "pens.methods") for name, value in points.items())
    monkeypatch.setattr("pens.parts.entry_points", lambda group: found.select(group=group))
    assert parse_methods("quiet,local") == ("quiet", "local")
    assert references_of(["quiet"]) == {}
    assert [method.name for method in all_methods()] == [*METHODS.built_in, "quiet"]
    with pytest.raises(SettingsError, match=r"'noisy' is offered by .*:Quiet, which calls it 'quiet'"):
        parse_methods("noisy")
    with pytest.raises(SettingsError, match="No module named 'no'"):
        parse_methods("broken")
    assert Settings().replace({"peers": 8}).scenario.peers == 8  # a broken package is nobody else's concern
    with pytest.raises(SettingsError, match="unknown setting 'stride'"):
        Settings().replace({"stride": 8})


class Heads(pens.Method):
    name = "heads"
    about = "a method that says of which parameters it weighs"

    def segments(self, settings: pens.RunSettings) -> tuple[str, ...]:
        return ("ouch",)


class OneWord(Heads):
    """A text is a sequence of its letters, none of which anybody meant."""

    name = "one-word"

    def segments(self, settings: pens.RunSettings) -> str:  # type: ignore[override]
        return "layers.9"


class Saying(pens.Method):
    name = "saying"
    about = "a method that says how much each model counts"
    says_weights = True


@pytest.mark.parametrize(
    ("method", "values", "why"),
    [
        (Heads, {}, "the method says weights for 'ouch', but no tensor's name begins with it"),
        (OneWord, {}, r"method 'one-word': its segments returned 'layers\.9', a str: return a list of beginnings"),
        (Heads, {"merge": "median"}, "merge = 'median' knows no weights, but heads says how much each model counts"),
        (Saying, {"merge": "median"}, "merge = 'median' knows no weights, but saying says how much each model counts"),
        (Saying, {"merge": "weighted"}, "merge = 'weighted' has weights of its own, but saying says how much"),
        ("dpsgd", {"merge": "weighted"}, "merge = 'weighted' has weights of its own, but dpsgd says how much"),
    ],
)
def test_a_method_that_says_weights_says_so_before_a_run(method: Any, values: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError, match=why) as failed:
        pens.run({**TINY, **values}, methods=[method], model=TinyNet, data=tiny_dataset())
    assert "update" not in str(failed.value)
