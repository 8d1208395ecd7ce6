# SPDX-License-Identifier: Apache-2.0
"""What is missing is run, once for all that share it; what is done is kept; time is bounded."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from pens.errors import DataNotFound, Interrupted, NotEnoughData, RunDirError, SettingsError
from pens.measuring.results import RunResult
from pens.paper.exhibits import EXHIBITS, exhibits
from pens.planning.conductor import PlanObserver
from pens.planning.estimates import Estimates
from pens.planning.identity import identity
from pens.planning.show import not_run_lines
from pens.planning.store import RunStore, folder_name
from pens.reproduce.run import ReproduceRequest, Reproduction
from pens.settings.tree import MethodName
from pens.storage.runlog import ExperimentDir
from tests.experiment.test_experiment import same_result
from tests.reproduce.trial import SMALL, trial


class Diary(PlanObserver):
    """Writes down what happens, and may ask for a stop."""

    def __init__(self, stop_at: int = 10**9) -> None:
        self.ran: list[tuple[str, MethodName, int]] = []
        self.left: list[float | None] = []
        self._looks, self._stop_at = 0, stop_at
        self._label = ""

    def entered(self, place: str) -> None:
        self._label = place.replace(",", "", 1)

    def progressed(self, method: MethodName, seed: int, fraction: float) -> None:
        self._looks += 1
        if self._looks == self._stop_at:
            raise Interrupted("stopped")

    def advanced(self, done: float, seconds_left: float | None) -> None:
        self.left.append(seconds_left)

    def finished(self, result: RunResult) -> None:
        self.ran.append((self._label, result.method, result.seed))


def papers_plan(out: Path, *names: str) -> Reproduction:
    """With the paper's own settings; to be looked at."""
    plan = Reproduction(ReproduceRequest(exhibits(names), (0, 1, 2, 3), device="cpu"), RunStore(out))
    plan.prepare()
    return plan


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_runs_that_several_tables_share_are_planned_once(tmp_path: Path) -> None:
    works = papers_plan(tmp_path / "none", "all").works()
    keys = [key for work in works for key in work.keys]
    assert len(keys) == len(set(keys)) == 288
    assert not (tmp_path / "none").exists()
    labels = {(work.group, work.label) for work in works}
    assert ("table5", "400 samples") not in labels  # pens of table 1
    assert ("figure1a", "400 samples") not in labels  # all of table 1's second column
    assert ("table4", "n_sampled 10, m 2") not in labels  # pens of figure 1b
    assert ("table4", "n_sampled 20, m 4") in labels
    runs = {(work.group, work.label): len(work.runs) for work in works}
    assert runs["figure2", "200 peers"] == 3
    assert runs["figure1b", "200 peers"] == 17


def test_a_figure_of_single_runs_needs_one_seed(tmp_path: Path) -> None:
    assert [work.seeds for work in papers_plan(tmp_path / "none", "figure2").works()] == [(0,)]


def test_peers_come_before_baselines_that_no_real_peer_could_have(tmp_path: Path) -> None:
    assert papers_plan(tmp_path / "none", "table1").works()[0].methods == (
        "pens",
        "random",
        "local",
        "oracle",
        "central",
    )


# --- running ----------------------------------------------------------------------------------------------------------


def test_what_is_done_is_kept_and_shared(tmp_path: Path) -> None:
    first = Diary()
    trial(tmp_path, "table5", methods=("pens",)).run(first)
    assert first.ran == [("table5 400 samples", "pens", 0)]  # in small, all rows are one setting
    second = Diary()
    trial(tmp_path, "table1", methods=("pens", "local"), seeds=2).run(second)
    assert [(m, s) for label, m, s in second.ran if "independent" in label] == [("pens", 1), ("local", 0), ("local", 1)]
    assert len(second.ran) == 7
    third = Diary()
    plan = trial(tmp_path, "table1", "table5", methods=("pens", "local"), seeds=2)
    assert plan.works() == []
    plan.run(third)
    assert third.ran == []
    record = ExperimentDir(tmp_path / folder_name(EXHIBITS["table1"].columns[0].settings(SMALL))).read()
    assert (set(record.methods), record.seeds) == ({"pens", "local"}, (0, 1))


def test_other_settings_get_a_folder_of_their_own(tmp_path: Path) -> None:
    for rounds in (2, 3):
        trial(tmp_path, "table2", methods=("local",), rounds=rounds).run(Diary())
    name = folder_name(EXHIBITS["table2"].columns[0].settings(SMALL))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [name, f"{name}-2"]
    assert trial(tmp_path, "table2", methods=("local",), rounds=3).works() == []


def test_how_it_is_computed_makes_no_other_setting() -> None:
    settings = EXHIBITS["table1"].columns[0].settings()
    assert identity(settings) == identity(settings.replace({"seeds_at_once": 2, "max_batch": 7}))
    assert identity(settings) != identity(settings.replace({"precision": "fp32"}))
    assert identity(settings) != identity(settings.replace({"lr": 0.1}))


def test_an_interrupted_plan_goes_on_to_the_same_result(tmp_path: Path) -> None:
    for stop_at in (3, 4):
        with pytest.raises(Interrupted):
            trial(tmp_path / "broken", "table2", methods=("pens", "random"), rounds=5).run(Diary(stop_at))
    assert list((tmp_path / "broken").rglob("checkpoint.safetensors"))
    for name in ("broken", "whole"):
        trial(tmp_path / name, "table2", methods=("pens", "random"), rounds=5).run(Diary())
    broken, whole = (next((tmp_path / name).glob("digits*")) for name in ("broken", "whole"))
    for a, b in zip(ExperimentDir(broken).results(), ExperimentDir(whole).results(), strict=True):
        same_result(a, b)


def test_several_seeds_run_as_one_stack(tmp_path: Path) -> None:
    diary = Diary()
    trial(tmp_path, "table2", methods=("random", "local"), seeds=2, seeds_at_once=2).run(diary)
    assert [(m, s) for _, m, s in diary.ran] == [("random", 0), ("random", 1), ("local", 0), ("local", 1)]


# --- time -------------------------------------------------------------------------------------------------------------


def test_times_are_predicted_from_runs_of_the_same_kind() -> None:
    known = Estimates("gpu")
    table1, table5 = EXHIBITS["table1"].columns[0].settings(), EXHIBITS["table5"].columns[3].settings()
    assert known.seconds(table1, "pens") is None
    known.learn(table1, "pens", 1000.0, "cpu")
    assert known.seconds(table1, "pens") is None
    for seconds in (30.0, 50.0):
        known.learn(table1, "pens", seconds, "gpu")
    assert known.seconds(table1, "pens") == 40
    assert known.seconds(table5, "pens") == pytest.approx(10)  # 100 samples in place of 400
    assert known.seconds(table1, "local") is None
    assert known.seconds(EXHIBITS["table3"].columns[0].settings(), "pens") is None


def test_time_left_of_an_unknown_method_is_guessed_from_others_on_the_same_data() -> None:
    known = Estimates("gpu")
    table1, table5 = EXHIBITS["table1"].columns[0].settings(), EXHIBITS["table5"].columns[3].settings()
    assert known.guess(table1) is None
    known.learn(table1, "pens", 40.0, "gpu")
    known.learn(table5, "random", 5.0, "gpu")
    assert known.guess(table1) == pytest.approx(30)  # of 40, and four times 5
    assert known.guess(EXHIBITS["table3"].columns[0].settings()) is None


def test_what_does_not_fit_into_the_budget_is_not_begun(tmp_path: Path) -> None:
    trial(tmp_path, "table2", methods=("local",)).run(Diary())
    plan = trial(tmp_path, "table2", methods=("local", "random"), seeds=3, budget_s=100.0)
    settings = EXHIBITS["table2"].columns[0].settings(SMALL)
    for _ in range(99):
        plan.estimates.learn(settings, "local", 500.0, "cpu")
    diary = Diary()
    plan.run(diary, clock=lambda: 0.0)
    assert [m for _, m, _ in diary.ran] == ["random"] * 3  # of these nothing is known, so they are tried
    assert [work.runs for work in plan.works()] == [(("local", 1), ("local", 2))]


def test_a_run_in_progress_is_saved_when_the_budget_is_over(tmp_path: Path) -> None:
    plan = trial(tmp_path, "table2", methods=("random", "local"), rounds=6, budget_s=6.5)
    diary = Diary()
    plan.run(diary, clock=itertools.count().__next__)
    assert diary.ran == []
    assert [work.methods for work in plan.works()] == [("random", "local")]
    saved = next(tmp_path.glob("digits*"))
    assert ExperimentDir(saved).run("random", 0).seconds_spent() > 0
    assert ExperimentDir(saved).run("local", 0).seconds_spent() == 0
    assert not_run_lines(plan)[1].endswith("random, local: seed 0; begun and saved: random seed 0")
    again = trial(tmp_path, "table2", methods=("random", "local"), rounds=6)
    again.run(Diary())
    assert again.works() == []


def test_time_left_is_told_once_something_is_known(tmp_path: Path) -> None:
    diary = Diary()
    trial(tmp_path, "table2", methods=("local",), seeds=2).run(diary)
    assert diary.left[0] is None
    assert diary.left[-1] == 0
    assert any(seconds for seconds in diary.left)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("do not touch")
    with pytest.raises(RunDirError, match="not made by pens reproduce: choose another --out"):
        trial(tmp_path, "table1")
    with pytest.raises(RunDirError, match="is a file"):
        trial(tmp_path / "thesis.txt", "table1")


def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(SettingsError, match="table5 has pens only"):
        trial(out, "table5", methods=("random",))
    with pytest.raises(SettingsError, match="n_sampled = 9"):
        trial(out, "table1", n_sampled=9)
    with pytest.raises(SettingsError, match="4 rotations need the same number"):
        trial(out, "table2", peers=6)
    with pytest.raises(NotEnoughData, match="at most"):
        trial(out, "table1", train_per_peer=9999).run(Diary())
    assert not out.exists()


def test_missing_data_is_told_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_here(name: str, data_dir: Path | None) -> None:
        raise DataNotFound(f"{name}: not found")

    monkeypatch.setattr("pens.data.own_sources.load_dataset", not_here)
    with pytest.raises(DataNotFound, match="digits"):
        trial(tmp_path / "out", "table1").run(Diary())
    assert not (tmp_path / "out").exists()
