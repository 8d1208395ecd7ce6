# SPDX-License-Identifier: Apache-2.0
"""Ours beside the paper's: the rule by hand, the files, and back again."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from pens.errors import ReportError
from pens.experiment.presets import rules_of
from pens.measuring.metrics import Interval
from pens.paper.exhibits import EXHIBITS
from pens.planning.conductor import PlanObserver
from pens.planning.show import not_run_lines, plan_words
from pens.planning.store import RunStore
from pens.reproduce.compare import Beside, Comparison, Finding, agreement_counts, compare
from pens.reproduce.keep import check_place, from_json, joined, keep, kept_seeds, load, load_all, outdated, to_json
from pens.reproduce.pictures import curve_chart, write_files, write_pictures
from pens.reproduce.show import (
    comparison_markdown,
    comparison_notes,
    comparison_table,
    plan_tables,
)
from pens.settings.keys import flat_values
from pens.settings.tree import MethodName
from pens.storage.runlog import RULES, ExperimentRecord
from tests.report.made import made_run
from tests.reproduce.trial import SMALL, trial

SVG = "{http://www.w3.org/2000/svg}"
METHODS: dict[MethodName, float] = {"pens": 0.57, "random": 0.55, "oracle": 0.58}


def made_store(folder: Path, name: str, accuracies: dict[MethodName, float], seeds: int = 2) -> RunStore:
    """Runs of all columns of a table or figure, made up; accuracies are around the given ones."""
    store = RunStore(folder)
    for column in EXHIBITS[name].columns:
        settings = column.settings(SMALL)
        place = store.take(ExperimentRecord(settings, tuple(accuracies), tuple(range(seeds))))
        for method, accuracy in accuracies.items():
            for seed in range(seeds):
                place.run(method, seed).save(made_run(settings, method, seed, accuracy))
    return store


def made_comparison(folder: Path, name: str, seeds: int = 2) -> tuple[Comparison, RunStore]:
    store = made_store(folder, name, METHODS, seeds)
    return compare(EXHIBITS[name], store, range(seeds), SMALL), store


def printed(comparison: Comparison, beside: Beside | None = None, width: int = 80) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(comparison_table(comparison, beside, width))
    return captured.get()


RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("name", [path.stem for path in sorted(RESULTS.glob("*.json"))])
def test_kept_results_are_judged_by_welchs_test_whatever_their_files_say(tmp_path: Path, name: str) -> None:
    text = (RESULTS / f"{name}.json").read_text(encoding="utf-8")
    path = tmp_path / f"{name}.json"
    path.write_text(re.sub(r'"verdict": "[^"]*"', '"verdict": "overlap"', text), encoding="utf-8")
    comparison = load(tmp_path, name)
    same = differ = unknown = 0
    for _, finding in comparison.findings:
        if finding.paper is None:
            continue
        if len(finding.values) < 3:
            unknown += 1
            continue
        spread = (finding.paper.half_width or 0.0) / stats.t.ppf(0.975, 3) * 2  # of the paper's four seeds
        mean, own = np.mean(finding.values), np.std(finding.values, ddof=1)
        p = stats.ttest_ind_from_stats(mean, own, len(finding.values), finding.paper.mean, spread, 4, False).pvalue
        same, differ = same + (p > 0.05), differ + (p <= 0.05)
        assert finding.verdict.agrees == (p > 0.05)
    assert agreement_counts([finding for _, finding in comparison.findings]) == (same, differ, unknown)
    notes = [note for note in comparison_notes(comparison) if note.startswith("Ours")]
    if same + differ + unknown:
        assert f"{same} of {same + differ + unknown} cells do not differ from the paper's, {differ} differ" in notes[0]
    assert "overlap" not in json.dumps(to_json(comparison))


def test_two_seeds_have_no_interval_and_never_agree() -> None:
    finding = Finding("pens", "accuracy", Interval(0.578, 0.01), (0, 1), (0.50, 0.65), 1.0)
    assert str(finding.verdict) == "too few seeds"
    assert agreement_counts([finding]) == (0, 0, 1)
    assert finding.ours
    assert finding.ours.half_width is None
    assert finding.ours.brief() == "57.5 (50.0, 65.0)"


def test_cells_that_were_not_run_are_said_to_be_so(tmp_path: Path) -> None:
    comparison, _ = made_comparison(tmp_path, "table2")
    found = {finding.method: finding for _, finding in comparison.findings}
    assert [m for m in found if not found[m].values] == ["central", "local"]
    assert found["pens"].seeds == (0, 1)
    assert found["pens"].seconds == 4.0
    text = printed(comparison)
    for line in ("central", "local"):
        assert any(line in row and "not run" in row and "0 of 2" in row for row in text.splitlines())
    assert "53.4 ± 0.7" in text  # the paper's
    assert max(map(len, text.splitlines())) <= 80
    assert comparison_notes(comparison)[0].startswith("A trial with other settings than the paper's: dataset = digits")


def test_precision_and_recall_are_compared(tmp_path: Path) -> None:
    comparison, _ = made_comparison(tmp_path, "table5")
    findings = [finding for _, finding in comparison.findings]
    assert [f.quantity for f in findings[:2]] == ["precision", "recall"]
    assert all(len(f.values) == 2 for f in findings)
    assert [line.split()[0] for line in printed(comparison).splitlines()[-2:]] == ["precision", "recall"]
    assert comparison_markdown(comparison).startswith("| setting | of pens | ours % |")


@pytest.mark.parametrize("name", EXHIBITS)
def test_every_comparison_fits_eighty_columns(tmp_path: Path, name: str) -> None:
    for seeds in (2, 3):
        comparison, _ = made_comparison(tmp_path / str(seeds), name, seeds)
        for beside in (None, Beside("authors' rules", comparison)):
            text = printed(comparison, beside)
            assert "…" not in text
            assert max(map(len, text.splitlines())) <= 80


def test_what_is_kept_is_enough_to_show_it_again(tmp_path: Path) -> None:
    comparison, _ = made_comparison(tmp_path / "runs", "table1")
    path, kept, left_out = keep(tmp_path / "results", comparison)
    assert kept == comparison
    assert not left_out
    data = json.loads(path.read_text())
    assert data["settings"]["n_sampled"] == 2
    assert "init" not in data["settings"]
    assert [column["settings"] for column in data["columns"]] == [{"init": "independent"}, {"init": "common"}]
    again = load(tmp_path / "results", "table1")
    assert printed(again) == printed(comparison)
    assert to_json(again) == to_json(comparison)
    assert from_json(json.loads(json.dumps(to_json(comparison)))).findings == comparison.findings
    assert path.stat().st_size < 20_000


def test_kept_cells_have_what_they_cost_and_older_ones_say_that_they_do_not(tmp_path: Path) -> None:
    comparison, _ = made_comparison(tmp_path / "runs", "table2", seeds=3)
    path = keep(tmp_path / "kept", comparison).path
    data = json.loads(path.read_text())
    pens = next(cell for cell in data["columns"][0]["cells"] if cell["method"] == "pens")
    # a round of step 1 and 4 of step 2, 3 models of 1000 bytes each; 6 updates: an epoch of 8 samples at 3 passes,
    # 4 validation samples each, and 2 models scored on 8 samples
    assert pens["spent"] == 3 * [{"models_received": 15, "bytes_received": 15_000, "forward_passes": 6 * 28 + 16}]
    wide = printed(load(tmp_path / "kept", "table2"), width=120)
    row = next(line.split() for line in wide.splitlines() if line.split()[:1] == ["pens"])
    assert row[-3:] == ["15", "0.18", "3"]
    del pens["spent"]
    pens["seeds"], pens["values"] = pens["seeds"][:2], pens["values"][:2]
    path.write_text(json.dumps(data))
    older = load(tmp_path / "kept", "table2")
    row = next(line.split() for line in printed(older, width=120).splitlines() if line.split()[:1] == ["pens"])
    assert row[-5:] == ["–", "–", "2", "of", "3"]
    filled = keep(tmp_path / "kept", comparison).comparison
    assert filled.findings == comparison.findings  # what is run now has its cost again
    assert comparison_markdown(older).splitlines()[0].endswith("| verdict | detectable | received | work | seeds |")


def test_figure_1_is_a_picture_with_its_numbers(tmp_path: Path) -> None:
    comparison, store = made_comparison(tmp_path / "runs", "figure1b")
    files = write_files(comparison, store, tmp_path / "files")
    assert [path.name for path in files] == ["figure1b.csv", "figure1b.svg"]
    svg = files[1].read_text(encoding="utf-8")
    assert svg.startswith("<svg")
    for word in ("pens", "oracle", "random", "local", "test accuracy, %", "peers"):
        assert word in svg
    with files[0].open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15
    fifty = next(row for row in rows if (row["setting"], row["method"]) == ("50 peers", "pens"))
    assert (fifty["seeds"], fifty["paper"]) == ("2", "0.425")
    assert next(row for row in rows if row["method"] == "local")["verdict"] == "not run"


def test_no_line_leads_over_what_was_not_run(tmp_path: Path) -> None:
    comparison = made_comparison(tmp_path / "runs", "figure1b")[0]
    pens = [next(f for f in column.findings if f.method == "pens") for column in comparison.columns]
    solid = []
    for missing in (None, 2, 1):
        columns = [
            replace(c, findings=(replace(f, seeds=(), values=()) if at == missing else f,))
            for at, (c, f) in enumerate(zip(comparison.columns, pens, strict=True))
        ]
        drawn = ElementTree.fromstring(curve_chart(replace(comparison, columns=tuple(columns))).svg)
        solid.append(sum("stroke-dasharray" not in path.attrib for path in drawn.iter() if path.tag.endswith("path")))
    assert solid[0] - solid[1] == 1
    assert solid[0] - solid[2] == 2


@pytest.mark.parametrize("name", ["table1", "table4", "table5"])
def test_a_table_is_a_picture_with_a_mark_for_each_number(tmp_path: Path, name: str) -> None:
    comparison, store = made_comparison(tmp_path / "runs", name)
    _, picture = write_files(comparison, store, tmp_path / "files")
    drawn = ElementTree.parse(picture).getroot()
    findings = [finding for _, finding in comparison.findings]
    assert len(list(drawn.iter(f"{SVG}circle"))) == sum(finding.ours is not None for finding in findings) > 0
    assert len(list(drawn.iter(f"{SVG}path"))) == sum(finding.paper is not None for finding in findings)
    words = [text.text for text in drawn.iter(f"{SVG}text")]
    assert words.count("not run") == sum(finding.ours is None for finding in findings)
    for column in comparison.columns:
        assert words.count(column.label) == 1
    tall = float(drawn.attrib["viewBox"].split()[3])
    assert all(0 < float(text.attrib["y"]) < tall for text in drawn.iter(f"{SVG}text"))


def test_figure_2_is_a_map_for_each_method(tmp_path: Path) -> None:
    comparison, store = made_comparison(tmp_path / "runs", "figure2")
    names = [path.name for path in write_files(comparison, store, tmp_path / "files")]
    assert names[0] == "figure2.csv"
    for method in ("oracle", "pens", "random"):
        assert {f"figure2-{method}.svg", f"figure2-{method}.csv"} <= set(names)
    assert all(finding.seeds == (0,) for _, finding in comparison.findings)


def test_kept_files_of_an_older_version_call_a_cluster_a_kind(tmp_path: Path) -> None:
    comparison, _ = made_comparison(tmp_path / "runs", "figure2")
    path = keep(tmp_path / "kept", comparison).path
    path.write_text(path.read_text().replace('"own cluster"', '"own kind"'))
    assert '"own kind"' in path.read_text()
    assert [f.quantity for f in load(tmp_path / "kept", "figure2").columns[0].findings] == ["own cluster"] * 3


def test_nothing_was_run(tmp_path: Path) -> None:
    comparison = compare(EXHIBITS["figure1a"], RunStore(tmp_path / "none"), [0, 1], {})
    assert comparison.is_empty
    assert {str(finding.verdict) for _, finding in comparison.findings} == {"not run"}


@pytest.mark.parametrize(("folder", "rules"), [("results", "ours"), ("results/authors", "authors")])
def test_kept_files_of_an_older_version_call_settings_otherwise(folder: str, rules: str) -> None:
    """`dataset` is now `source`, and `score_by` is `score`: what was kept by today's rules is found, and nothing of
    it is outdated."""
    found = load_all(Path(__file__).parents[2] / folder, rules_of(rules))
    assert "table1" in {kept.name for kept in found}
    for kept in found:
        assert {column.settings["source"] for column in kept.columns} <= {"cifar-10", "fashion-mnist"}
        assert outdated(kept) == []


def test_kept_results_overwrite_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "table1.json").write_text('{"mine": 1}')
    with pytest.raises(ReportError, match="choose another --keep"):
        check_place(tmp_path, ["table1"], {})
    check_place(tmp_path, ["table2"], {})
    with pytest.raises(ReportError, match="is a file"):
        check_place(tmp_path / "table1.json", ["table1"], {})
    with pytest.raises(ReportError, match="not a result of this version"):
        load(tmp_path, "table1")
    with pytest.raises(ReportError, match="--keep"):
        load(tmp_path, "table3")


def test_a_trial_does_not_take_the_place_of_the_real_thing(tmp_path: Path) -> None:
    keep(tmp_path, compare(EXHIBITS["table2"], RunStore(tmp_path / "none"), [0], {}))
    check_place(tmp_path, ["table2"], {})
    with pytest.raises(ReportError, match="with other settings"):
        check_place(tmp_path, ["table2"], {"rotations": (0, 180)})
    keep(tmp_path, compare(EXHIBITS["table3"], RunStore(tmp_path / "none"), [0], {"rotations": (0, 180)}))
    check_place(tmp_path, ["table3"], {"rotations": (0, 180)})


def test_a_plan_tells_what_is_there_and_what_is_missing(tmp_path: Path) -> None:
    plan = trial(tmp_path, "table1", "table5", methods=("pens", "local"), seeds=2)
    assert plan_words(plan) == "8 runs in all, each counted once; 0 complete, 8 to run: time unknown."
    assert not_run_lines(plan) == [
        "8 runs missing; repeat the same command to continue:",
        "  table1, independent init: pens, local: seed 0 1",
        "  table1, common init: pens, local: seed 0 1",
    ]
    trial(tmp_path, "table1", methods=("local",)).run(PlanObserver())
    plan = trial(tmp_path, "table1", "table5", methods=("pens", "local"), seeds=2)
    assert plan_words(plan).startswith("8 runs in all, each counted once; 2 complete, 6 to run: about")
    console = Console(width=80)
    with console.capture() as captured:
        for title, table in plan_tables(plan):
            console.print(title, table)
    assert "1/2" in captured.get()
    assert "as above" in captured.get()
    assert not_run_lines(plan)[1] == "  table1, independent init: pens: seed 0 1; local: seed 1"


# --- filled in several goes -------------------------------------------------------------------------------------------


def test_what_was_kept_of_other_seeds_and_methods_stays(tmp_path: Path) -> None:
    first = made_comparison(tmp_path / "first", "table1", seeds=3)[0]
    store = made_store(tmp_path / "second", "table1", {"pens": 0.61, "pens+": 0.63}, seeds=1)
    second = compare(EXHIBITS["table1"], store, range(4), SMALL)
    keep(tmp_path / "kept", first)
    keep(tmp_path / "kept", second)
    found = load(tmp_path / "kept", "table1")
    for before, after, column in zip(first.columns, second.columns, found.columns, strict=True):
        old, new, cells = ({f.method: f for f in c.findings} for c in (before, after, column))
        assert list(cells) == list(new)
        assert cells["random"] == old["random"]
        assert cells["pens+"] == new["pens+"]
        assert cells["central"].values == ()
        assert cells["pens"].seeds == (0, 1, 2)
        assert cells["pens"].values == (*new["pens"].values, *old["pens"].values[1:])
    assert found.planned_seeds == (0, 1, 2, 3)
    keep(tmp_path / "kept", first)
    assert "pens+" in [f.method for f in load(tmp_path / "kept", "table1").columns[0].findings]


def test_kept_pictures_show_all_that_is_kept(tmp_path: Path) -> None:
    chosen: tuple[tuple[MethodName, ...], ...] = (("random", "pens"), ("oracle",))
    dots = []
    for goes, some in enumerate(chosen):
        store = made_store(tmp_path / str(goes), "figure1a", {m: METHODS[m] for m in some})
        kept = keep(tmp_path / "kept", compare(EXHIBITS["figure1a"], store, range(2), SMALL))
        (picture,) = write_pictures(kept.comparison, store, tmp_path / "kept")
        dots.append(picture.read_text(encoding="utf-8").count("<circle"))
    assert 2 * dots[1] == 3 * dots[0] > 0


def test_versions_are_named_once_however_often_something_is_kept() -> None:
    columns = compare(EXHIBITS["table2"], RunStore(Path("none")), range(2), {}).columns
    found = [Finding("pens", "accuracy", None, (seed,), (0.5,), 1.0) for seed in range(3)]
    goes = [
        Comparison("table2", "", "", (0,), {}, (replace(columns[0], findings=(f,)),), ("cpu",), {"torch": version})
        for f, version in zip(found, ("2.1", "2.2", "2.2"), strict=True)
    ]
    kept = joined([joined([goes[0]], goes[1])], goes[2])
    assert kept.versions == {"torch": "2.1 and 2.2"}
    assert kept.devices == ("cpu",)
    assert {f.method: f.seeds for f in kept.columns[0].findings if f.values} == {"pens": (0, 1, 2)}


def test_runs_of_other_rules_are_run_again(tmp_path: Path) -> None:
    store = made_store(tmp_path, "table2", METHODS)
    settings = EXHIBITS["table2"].columns[0].settings(SMALL)
    assert store.complete(settings, "pens", 0)
    record = next(tmp_path.glob("*/experiment.json"))
    record.write_text(record.read_text().replace(f'"rules": {RULES}', '"rules": 1'))
    again = RunStore(tmp_path)
    again.open()
    assert not again.complete(settings, "pens", 0)
    assert again.take(ExperimentRecord(settings, ("pens",), (0,))).folder != record.parent


def test_kept_results_of_other_rules_do_not_count(tmp_path: Path) -> None:
    first = made_comparison(tmp_path / "runs", "table1")[0]
    path = keep(tmp_path / "kept", first).path
    assert load_all(tmp_path / "kept", SMALL) == [first]
    assert load_all(tmp_path / "kept", {}) == []
    path.write_text(path.read_text().replace(f'"rules": {RULES}', '"rules": 1'))
    assert load_all(tmp_path / "kept", SMALL) == []
    nothing = compare(EXHIBITS["table1"], RunStore(tmp_path / "none"), range(2), SMALL)
    found = keep(tmp_path / "kept", nothing)
    assert found.comparison == nothing
    assert found.left_out == [f"{f.method} ({label})" for label, f in first.findings if f.values]


def test_results_of_other_settings_do_not_stay(tmp_path: Path) -> None:
    first, store = made_comparison(tmp_path, "table1")
    other = compare(EXHIBITS["table1"], RunStore(tmp_path / "none"), range(2), {**SMALL, "weight_decay": 0.01})
    assert joined([first], other) == other
    pool = compare(EXHIBITS["table1"], store, range(2), {**SMALL, "central_rounds": 7})
    assert [f.values for f in joined([first], pool).columns[0].findings] == [
        f.values for f in first.columns[0].findings
    ]
    assert joined([pool], pool) == pool
    keep(tmp_path / "kept", first)
    assert keep(tmp_path / "kept", replace(pool, changed=SMALL)).left_out == []
    gone = keep(tmp_path / "kept", replace(other, changed=SMALL)).left_out
    assert gone == [f"{f.method} ({label})" for label, f in first.findings if f.values]
    assert len(gone) == 6


def test_a_column_of_another_name_is_known_by_its_settings(tmp_path: Path) -> None:
    first = made_comparison(tmp_path / "runs", "table1")[0]
    path = keep(tmp_path / "kept", first).path
    path.write_text(path.read_text().replace('"label": "common init"', '"label": "one first model"'))
    nothing = compare(EXHIBITS["table1"], RunStore(tmp_path / "none"), range(2), SMALL)
    found = keep(tmp_path / "kept", nothing)
    assert found.comparison.findings == first.findings
    assert found.left_out == []


def test_what_one_table_has_of_a_setting_counts_for_all(tmp_path: Path) -> None:
    store = made_store(tmp_path / "runs", "table1", {**METHODS, "pens+": 0.6})
    table = compare(EXHIBITS["table1"], store, range(2), SMALL)
    keep(tmp_path / "kept", table)
    nothing = compare(EXHIBITS["figure1a"], RunStore(tmp_path / "none"), range(2), SMALL)
    found = keep(tmp_path / "kept", nothing).comparison
    common = {f.method: f for f in table.columns[1].findings}
    for column in found.columns:  # all have the settings of table 1's second column: SMALL says how many samples
        assert [f.method for f in column.findings] == list(common)
        for f in column.findings:
            assert f == replace(common[f.method], paper=f.paper)
    assert (found.devices, found.versions) == (table.devices, table.versions)


def test_a_file_keeps_its_own_number_of_a_seed(tmp_path: Path) -> None:
    keep(tmp_path / "kept", made_comparison(tmp_path / "three", "table1", seeds=3)[0])
    store = made_store(tmp_path / "own", "table5", {"pens": 0.61}, seeds=2)
    own = compare(EXHIBITS["table5"], store, range(2), SMALL)
    assert keep(tmp_path / "kept", own).comparison == own  # no third seed was planned, and no accuracy asked for
    independent, common = (flat_values(column.settings(SMALL).explicit) for column in EXHIBITS["table1"].columns)
    assert kept_seeds([own], independent, "pens", "precision") == {0, 1}
    assert not kept_seeds([own], common, "pens", "precision")
    assert not kept_seeds([own], independent, "pens", "accuracy")


def test_settings_of_step_one_count_for_those_who_have_one(tmp_path: Path) -> None:
    kept = [made_comparison(tmp_path, "table2")[0]]
    settings = flat_values(EXHIBITS["table2"].columns[0].settings({**SMALL, "m": 2}).explicit)
    assert kept_seeds(kept, settings, "random", "accuracy") == {0, 1}
    assert not kept_seeds(kept, settings, "pens", "accuracy")


def test_what_is_kept_need_not_be_run(tmp_path: Path) -> None:
    kept = made_comparison(tmp_path / "runs", "table1", seeds=1)[0]
    plan = trial(tmp_path / "none", "table1", "figure1a", methods=("pens", "local"), seeds=2, kept=(kept,))
    assert not_run_lines(plan)[1:] == [
        f"  table1, {init} init: pens: seed 1; local: seed 0 1" for init in ("independent", "common")
    ]
    assert plan_words(plan).startswith("8 runs in all, each counted once; 2 complete, 6 to run")
    assert [work.stacks for work in plan.works()] == 2 * [[(("pens",), (1,)), (("local",), (0, 1))]]


def test_kept_files_say_what_auto_meant(tmp_path: Path) -> None:
    found = compare(EXHIBITS["table3"], RunStore(tmp_path / "none"), range(2), {})
    assert [column.settings["step1_epochs"] for column in found.columns] == [7, 3]
    assert {column.settings["expected"] for column in found.columns} == {"uniform"}


def test_settings_that_are_no_more_are_no_reason_to_fail(tmp_path: Path) -> None:
    kept = made_comparison(tmp_path / "runs", "table2")[0]
    older = replace(kept, columns=tuple(replace(c, settings={**c.settings, "gone": 3}) for c in kept.columns))
    assert plan_words(trial(tmp_path / "none", "table2", methods=("pens",), seeds=2, kept=(older,))).endswith(
        "0 to run."
    )
    keep(tmp_path / "kept", older)
    assert keep(tmp_path / "kept", kept).left_out == []
