# SPDX-License-Identifier: Apache-2.0
"""Progress where somebody can see it, and warnings when they happen, once."""

from __future__ import annotations

import io
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

import pens
from pens.errors import SettingsError
from pens.experiment import progress
from pens.experiment.progress import Bars, NotebookBars, showing
from pens.settings.tree import MethodName, Settings
from tests.conftest import TINY
from tests.experiment.test_experiment import ALL_ALONE, tiny_run
from tests.report.made import made_run


class Listener(pens.Observer):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def started(self, method: MethodName, seed: int) -> None:
        self.heard.append(f"started {method} {seed}")

    def finished(self, result: pens.RunResult) -> None:
        self.heard.append(f"finished {result.method} {result.seed}")


def test_nothing_is_shown_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    tiny_run(methods="local")
    tiny_run(methods="local", progress=False)
    assert capsys.readouterr() == ("", "")


def test_asked_for_it_is_shown_as_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    result = tiny_run(methods="local,random", progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.partition(":")[0] for line in err.splitlines()] == ["local seed 0", "random seed 0"]
    assert f"{100 * result.runs[0].mean_accuracy:.1f} % in " in err


def test_a_terminal_shows_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()

    def console(**how: Any) -> Console:
        return Console(file=written, force_terminal=True, width=100)

    monkeypatch.setattr(progress, "Console", console)
    tiny_run(methods="local,pens")
    assert "local seed 0" in written.getvalue()
    assert "100%" in written.getvalue()
    before = written.tell()
    tiny_run(methods="local", progress=False)
    listener = Listener()
    tiny_run(methods="local", observer=listener)  # which shows what it likes
    assert written.tell() == before
    tiny_run(methods="local", observer=listener, progress=True)
    assert written.tell() > before
    assert listener.heard == ["started local 0", "finished local 0"] * 2


def test_a_program_that_shows_something_live_itself_is_left_alone() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with Bars(console) as bars, Bars(console) as inner:
        for each in (bars, inner):
            each.started("local", 0)
            each.progressed("local", 0, 0.5)


def test_what_progress_may_be() -> None:
    with pytest.raises(SettingsError, match="progress = 'yes': choose True, False or 'auto'"):
        tiny_run(methods="local", progress="yes")


class Display:
    """What a notebook shows below a cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def display(self, html: str, display_id: bool) -> Display:
        assert display_id
        self.shown.append(html)
        return self

    def update(self, html: str) -> None:
        self.shown.append(html)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Display:
    shown = Display()
    shell = types.SimpleNamespace(kernel=object())
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    display: Any = types.ModuleType("IPython.display")
    display.HTML, display.display = str, shown.display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return shown


def test_a_notebook_shows_bars_that_are_exchanged(notebook: Display, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_run(methods="local,pens")
    assert notebook.shown[0].endswith("<div>0 of 0 runs complete, 0 s</div></div>")
    assert '<progress value="0.000" max="1">' in notebook.shown[1]
    last = notebook.shown[-1]
    assert "local seed 0" in last
    assert "pens seed 0" in last
    assert last.count('value="1.000"') == 2
    assert "2 of 2 runs complete" in last
    assert capsys.readouterr() == ("", "")


def test_a_notebooks_bars_are_escaped_and_few() -> None:
    bars = NotebookBars()
    for seed in range(40):
        bars.started("<b>", seed)
        bars.finished(made_run(Settings().replace(TINY), "<b>", seed, 0.5))
    assert "<b>" not in bars.html()
    assert bars.html().count("<progress") == 12
    assert "40 of 40 runs complete" in bars.html()


def test_a_shell_that_is_no_notebook_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with showing("auto", None) as observer:
        assert not isinstance(observer, NotebookBars)


# --- warnings ---------------------------------------------------------------------------------------------------------

WRONG = {"lr": 1e30, "optimizer": "sgd"}


def warned(call: Callable[[], object]) -> list[warnings.WarningMessage]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        call()
    return [each for each in caught if issubclass(each.category, pens.PensWarning)]


def test_warnings_are_pythons_own_at_the_callers_line_and_each_time() -> None:
    for _ in range(2):
        caught = warned(lambda: tiny_run(methods="random", overrides=WRONG))
        setbacks = [each for each in caught if "keeps its last good model" in str(each.message)]
        assert len(setbacks) == 6
        assert str(setbacks[0].message).startswith("random seed 0: peer 0: the loss is not a finite number")
        assert setbacks[0].filename.endswith("test_experiment.py")


def test_fallbacks_are_told_once_for_all_their_peers() -> None:
    caught = warned(lambda: tiny_run(methods="pens", overrides={**ALL_ALONE, "rounds": 3}))
    told = [str(each.message) for each in caught if "step 1" in str(each.message)]
    assert told == ["pens seed 0: peers 0, 1, 2, 3, 4, 5: heard nobody in step 1, so trained alone"]


def test_an_observer_that_takes_warnings_is_the_only_one_told() -> None:
    heard: list[str] = []

    class Warned(pens.Observer):
        def warned(self, method: MethodName, seed: int, message: str) -> None:
            heard.append(message)

    for shown in (False, True):
        assert not warned(lambda: tiny_run(methods="random", overrides=WRONG, observer=Warned(), progress=shown))  # noqa: B023
    assert len([message for message in heard if "last good model" in message]) == 12
    assert warned(lambda: tiny_run(methods="random", overrides=WRONG, observer=Listener()))
