# SPDX-License-Identifier: Apache-2.0
"""The page, its files, and what it says where something is missing."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

import pens
from pens.command_line.main import main
from pens.errors import PensError, ReportError, RunDirError
from pens.experiment.presets import PRESETS
from pens.measuring.metrics import interval
from pens.measuring.results import DataSizes
from pens.report.page import write_report
from pens.report.rerun import command
from pens.report.sections.costs import costs_section
from pens.report.study import read_studies
from pens.report.svg import palette
from pens.settings.reading import parse_assignments
from pens.settings.tree import MethodName, Settings
from pens.storage.runlog import ExperimentDir, ExperimentRecord
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.experiment.test_experiment import tiny_run
from tests.methods.specs import ANY_NETWORK as METHODS
from tests.report.made import made_run, made_study

SETTINGS = Settings().replace(TINY)
SVG = "{http://www.w3.org/2000/svg}"
VOID = {"meta", "br", "link", "img", "input", "hr"}


class Page(HTMLParser):
    """Reads a page strictly: every tag is closed, and every address is noted."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "action", "data")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "title"):
            self.words.append(data.replace("\u00a0", " "))

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def read_page(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "img"} & set(page.tags)
    assert not re.search(r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)", text)
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        elif not link.startswith("data:image/png;base64,"):
            assert (path.parent / unquote(link)).is_file(), link
    assert len(set(page.ids)) == len(page.ids)
    return page


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a real, small experiment with every method."""
    folder = tmp_path_factory.mktemp("whole")
    tiny_run(methods=METHODS, seeds=3, out=folder / "run")
    write_report([folder / "run"], folder / "report.html")
    return folder


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_page_stands_alone_and_answers_every_question(whole: Path) -> None:
    page = read_page(whole / "report.html")
    for question in (
        "How accurate is each method?",
        "How fast does each method learn?",
        "Whose models does a peer merge?",
        "Does PENS find the right neighbours, and when?",
        "Does every peer gain?",
        "What does it cost?",
        "Are the differences significant?",
        "How can this be repeated?",
    ):
        assert page.text.count(question) == 2  # in the list of sections, and above its own
    assert f"pens {pens.__version__}" in page.text
    assert "6 peers (3 of 0°, 3 of 180°)" in page.text
    assert page.tags.count("svg") == 23
    assert "There is no picture of pens+ over the rounds: its rule needs losses" in page.text
    assert page.text.count("tests is each peer's choice, by its own validation data") == 3  # pens+, random+, oracle+


def test_every_picture_is_a_file_with_its_numbers(whole: Path) -> None:
    folder = whole / "report_files"
    pictures = sorted(folder.glob("*.svg"))
    assert {p.stem for p in pictures} == {p.stem for p in folder.glob("*.csv")}
    names = {p.stem.removeprefix("run-") for p in pictures}
    assert names == {
        *("accuracy", "curves-rounds", "curves-bytes", "curves-forwards", "peers", "gains", "bytes"),
        *(
            "work",
            "differences",
            "merges-pens",
            "merges-pens+",
            "merges-random",
            "merges-random+",
            "merges-oracle",
            "merges-oracle+",
            "merges-dac",
            "merges-dpsgd",
            "merges-el",
            "merges-dac-var",
            "merges-fedfomo",
            "merges-deprl",
            "merges-facade",
        ),
        "neighbours-pens",
    }
    for path in pictures:
        assert "var(--" not in path.read_text(encoding="utf-8")
        root = ElementTree.parse(path).getroot()
        assert root.attrib["aria-label"]
        assert rows_of(path.with_suffix(".csv"))
        sizes = [float(t.attrib["font-size"]) for t in root.iter("{http://www.w3.org/2000/svg}text")]
        assert min(sizes) >= 12  # of 340 units, shown at least 300 pixels wide


def test_pictures_and_tables_hold_the_same_numbers(whole: Path) -> None:
    result = ExperimentDir(whole / "run").results()
    rows = rows_of(whole / "report_files" / "run-accuracy.csv")
    svg = (whole / "report_files" / "run-accuracy.svg").read_text(encoding="utf-8")
    for row in rows:
        mean = sum(r.mean_accuracy for r in result if r.method == row["method"]) / 3
        assert float(row["accuracy"]) == pytest.approx(mean)
        assert f"{100 * float(row['accuracy']):.1f} ± {100 * float(row['half_width_95']):.1f}" in svg
    # a curve's last point stands where its last number is, measured against the scale's labels
    rows = rows_of(whole / "report_files" / "run-curves-rounds.csv")
    root = ElementTree.parse(whole / "report_files" / "run-curves-rounds.svg").getroot()
    texts = [(t.text or "", t.attrib) for t in root.iter("{http://www.w3.org/2000/svg}text")]
    ticks = {float(t): float(a["y"]) - 4 for t, a in texts if a["text-anchor"] == "end" and t.isdigit()}
    low, high = min(ticks), max(ticks)
    lines = [p.attrib["d"] for p in root.iter("{http://www.w3.org/2000/svg}path") if p.attrib["fill"] == "none"]
    for method, line in zip(METHODS, lines, strict=True):
        mine = [row for row in rows if row["method"] == method]
        points = [tuple(map(float, point.split())) for point in line.removeprefix("M").split("L")]
        assert len(points) == len(mine)
        for (_, y), row in zip(points, mine, strict=True):
            value = low + (y - ticks[low]) / (ticks[high] - ticks[low]) * (high - low)
            assert value == pytest.approx(100 * float(row["mean"]), abs=0.02)
    rows = rows_of(whole / "report_files" / "run-peers.csv")
    assert len(rows) == len(METHODS) * 3 * 6
    pens_run = next(r for r in result if (r.method, r.seed) == ("pens", 1))
    found = [float(r["accuracy"]) for r in rows if (r["method"], r["seed"]) == ("pens", "1")]
    assert found == pytest.approx(pens_run.accuracy.tolist())


def test_the_same_runs_give_the_same_page_and_an_older_report_is_written_over(whole: Path) -> None:
    before = (whole / "report.html").read_bytes()
    write_report([whole / "run"], whole / "report.html")
    assert (whole / "report.html").read_bytes() == before


def test_the_paper_stands_beside_its_own_settings(tmp_path: Path) -> None:
    settings = PRESETS["cifar-10"].settings.replace({"rounds": 100, "step1_rounds": 4, "step1_samplings": 50})
    accuracies = {"pens": [0.57, 0.575, 0.58, 0.573], "random": [0.60, 0.601, 0.602, 0.603]}
    made_study(tmp_path / "run", settings, accuracies)
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    told = "no significant difference for pens; a significant difference for random (above by 5.5)."
    assert f"by Welch's test at 5 %: {told}" in text
    assert "Unlike in the paper, random is above pens." in text
    made_study(tmp_path / "one", settings, {"random": accuracies["random"]})
    write_report([tmp_path / "one"], tmp_path / "one.html")
    one = read_page(tmp_path / "one.html").text
    assert "by Welch's test at 5 %: a significant difference for random (above by 5.5)." in one
    assert "57.8 ± 0.4" in text
    assert "rounds = 100 (paper: 333)" in text
    assert "The paper's table 5: precision 99.7 ± 0.1 %" in text


def test_own_parts_are_not_set_beside_the_paper(tmp_path: Path) -> None:
    made_study(tmp_path / "run", PRESETS["cifar-10"].settings, {"local": [0.3]}, own_parts=("data",))
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    assert "(your own data or network)" in text
    assert "data=your_data" in text


@pytest.mark.parametrize("schedule", ["rounds", "async"])
@pytest.mark.parametrize("methods", ["local", "pens", "central", "oracle,central"])
def test_a_few_methods_with_one_seed_are_enough(tmp_path: Path, methods: str, schedule: str) -> None:
    tiny_run(methods=methods, out=tmp_path / "run", overrides={"schedule": schedule, "rounds": 2})
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    assert "one seed" in text
    assert "Gains cannot be computed" in text  # who gained: there is nothing to pair with
    assert ("No method that selects neighbours, such as pens, was run here" in text) == (methods != "pens")
    assert ("virtual time counts the rounds" in text) == (schedule == "rounds")


def test_two_peers_have_a_report(tmp_path: Path) -> None:
    overrides = {"peers": 2, "n_peers": 1, "rounds": 2}
    tiny_run(methods="local,random", seeds=2, out=tmp_path / "run", overrides=overrides)
    write_report([tmp_path / "run"], tmp_path / "report.html")
    assert "The clusters are not known." in read_page(tmp_path / "report.html").text


def unknown_clusters(folder: Path) -> Path:
    """Twelve peers that chose each other in three groups; nobody said so, and all have names."""
    settings = SETTINGS.replace({"peers": 12})
    directory = ExperimentDir(folder)
    directory.create(ExperimentRecord(settings, ("local", "random", "pens"), (0, 1, 2), ("data",)))
    chosen = {p: tuple(o for o in range(12) if o % 3 == p % 3 and o != p) for p in range(12)}
    for method in ("local", "random", "pens"):
        for seed in range(3):
            run = made_run(settings, method, seed, 0.5)
            run = replace(
                run,
                clusters=tuple(range(12)),
                cluster_names=tuple(f"hospital-{p:02d}" for p in range(12)),
                agreement=None,
                neighbours=chosen if method == "pens" else {},
                data_sizes=DataSizes(np.arange(70, 82), np.full(12, 30)),
            )
            directory.run(run.method, seed).save(run)
    return folder


def test_where_clusters_are_not_known_groups_are_discovered_and_nothing_is_claimed(tmp_path: Path) -> None:
    write_report([unknown_clusters(tmp_path / "run")], tmp_path / "report.html")
    page = read_page(tmp_path / "report.html")
    assert "own cluster" not in page.text
    assert "own cluster" not in page.text
    assert "1 of hospital-00" not in page.text
    assert "own data: 12 peers, 70 to 81 training samples each" in page.text
    assert "pens give 3 groups of 4, 4 and 4 peers: discovered, not known. 100.0 % of the selected" in page.text
    assert {"group 2", "hospital-01, hospital-04, hospital-07, hospital-10"} <= set(page.words)
    assert "so the neighbours have no precision and no recall" in page.text
    names = {path.stem.removeprefix("run-") for path in (tmp_path / "report_files").glob("*.svg")}
    assert {"merges-pens", "merges-random"} <= names
    assert not [name for name in names if name.startswith("neighbours")]
    rows = rows_of(tmp_path / "report_files" / "run-merges-random.csv")
    assert [row["receiving_discovered_group"] for row in rows[::12]] == 4 * ["group 1"] + 4 * ["group 2"] + 4 * [
        "group 3"
    ]
    assert {row["receiving_peers"] for row in rows[:48]} == {f"hospital-{p:02d}" for p in (0, 3, 6, 9)}
    assert {row["cluster"] for row in rows_of(tmp_path / "report_files" / "run-peers.csv")} == {""}


def test_words_are_explained_after_what_they_are_used_for(whole: Path) -> None:
    text = read_page(whole / "report.html").text
    assert text.index("How accurate is each method?") < text.index(
        "one participant, whose data no other participant sees"
    )
    assert "an upper bound, because it needs to know the true clusters" in text


def test_two_seeds_have_no_interval_anywhere(tmp_path: Path) -> None:
    made_study(tmp_path / "run", SETTINGS, {"local": [0.3, 0.31], "random": [0.5, 0.6], "pens": [0.4, 0.8]})
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    assert "±" not in text
    assert re.search(r"pens has \d+\.\d \(2 seeds: \d+\.\d, \d+\.\d\) %", text)
    assert "2 seeds are too few for an interval, so the difference may be due to chance" in text
    assert "Significance cannot be tested with 2 seeds: intervals and tests need at least 3 seeds" in text
    for name in ("accuracy", "differences"):
        assert {row["half_width_95"] for row in rows_of(tmp_path / "report_files" / f"run-{name}.csv")} == {""}


def test_every_difference_is_drawn_where_it_is(tmp_path: Path) -> None:
    made_study(tmp_path / "run", SETTINGS, {"local": [0.2, 0.21, 0.22], "pens": [0.8, 0.81, 0.8], "random": [0.79] * 3})
    write_report([tmp_path / "run"], tmp_path / "report.html")
    root = ElementTree.parse(tmp_path / "report_files" / "run-differences.svg").getroot()
    texts = [(t.text or "", t.attrib) for t in root.iter(f"{SVG}text")]
    ticks = {
        float(t.replace("−", "-")): float(a["x"]) for t, a in texts if a["text-anchor"] == "middle" and t[-1:] == "0"
    }
    low, high = min(ticks), max(ticks)
    dots = [float(c.attrib["cx"]) for c in root.iter(f"{SVG}circle")]
    rows = rows_of(tmp_path / "report_files" / "run-differences.csv")
    assert len(dots) == len(rows) == 3
    for at, row in zip(dots, rows, strict=True):
        value = low + (at - ticks[low]) / (ticks[high] - ticks[low]) * (high - low)
        assert value == pytest.approx(100 * float(row["difference"]), abs=0.1)


def test_pictures_have_a_ground_of_their_own_and_a_dark_form(whole: Path) -> None:
    light, dark = palette(METHODS)
    for path in (whole / "report_files").glob("*.svg"):
        root = ElementTree.parse(path).getroot()
        ground = next(root.iter(f"{SVG}rect")).attrib
        assert [ground[key] for key in ("x", "y", "width", "height")] == root.attrib["viewBox"].split()
        assert ground["fill"] == light["paper"]
        style = next(root.iter(f"{SVG}style")).text or ""
        assert style.startswith("@media (prefers-color-scheme:dark)")
        used = {e.attrib[what] for e in root.iter() for what in ("fill", "stroke") if what in e.attrib} - {"none"}
        names = {value: name for name, value in light.items()}
        for colour in used:
            assert dark[names[colour]] == colour or f'="{colour}"]' in style
    assert len(set(light.values())) == len(light)  # told apart by their value


def test_many_peers_of_unequal_kinds_make_a_small_page(tmp_path: Path) -> None:
    settings = SETTINGS.replace({"peers": 1200})
    clusters = [int(p >= 300) for p in range(1200)]
    accuracies = {"local": [0.3, 0.4], "random": [0.5, 0.5], "pens": [0.6, 0.6]}
    made_study(tmp_path / "run", settings, accuracies, clusters=clusters)
    write_report([tmp_path / "run"], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
    text = read_page(tmp_path / "report.html").text
    assert "1200 peers (300 of 0°, 900 of 180°)" in text
    assert "1200 peers are too many for one row each" in text
    assert len(rows_of(tmp_path / "report_files" / "run-merges-pens.csv")) == 100 * 100


def test_missing_runs_are_named(tmp_path: Path) -> None:
    methods: tuple[MethodName, ...] = ("local", "random", "pens")
    made_study(tmp_path / "run", SETTINGS, {"local": [0.3, 0.4], "random": [0.5]}, methods=methods, seeds=2)
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    assert "3 of 6 runs are missing: random seed 1, pens seed 0, pens seed 1." in text
    assert "No method that selects neighbours, such as pens, was run here" in text


def test_what_older_runs_did_not_record_is_explained(tmp_path: Path) -> None:
    study = made_study(tmp_path / "run", SETTINGS, {"local": [0.3], "pens": [0.5]})
    folder = tmp_path / "run" / "pens-seed0"
    (folder / "comparisons.parquet").unlink()
    data = json.loads((folder / "result.json").read_text())
    data["data_sizes"] = None
    (folder / "result.json").write_text(json.dumps(data))
    assert study.runs
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    older = "these runs are of an older version, which did not record it; run them again"
    assert f"There is no picture of pens over the rounds: {older}" in text
    assert f"The picture over work lacks pens: {older}" in text


def test_several_experiments_have_a_table_in_common(tmp_path: Path) -> None:
    made_study(tmp_path / "a" / "run", SETTINGS, {"local": [0.3, 0.4], "pens": [0.5, 0.6]})
    made_study(tmp_path / "b" / "run", SETTINGS.replace({"peers": 8}), {"random": [0.4]})
    empty = ExperimentDir(tmp_path / "odd <b> & name")
    empty.create(ExperimentRecord(SETTINGS, ("pens",), (0,)))
    folders = [tmp_path / "a" / "run", tmp_path / "b" / "run", empty.folder]
    write_report(folders, tmp_path / "my report.html")
    page = read_page(tmp_path / "my report.html")
    assert "3 experiments side by side" in page.text
    assert "run (2)" in page.text
    assert "odd <b> & name" in page.text
    assert "b" not in page.tags
    rows = rows_of(tmp_path / "my report_files" / "overview.csv")
    assert [row["experiment"] for row in rows] == ["run", "… its cost", "run (2)", "… its cost", "odd <b> & name"]
    assert rows[2]["pens"] == "–"
    # 7 rounds of 3 models; (5 · 2 + 3 · 1) epochs of 9 samples at 3 passes, 8 validations of 5, 9 models scored on 9
    assert rows[1]["pens"] == "21; 0.47"
    assert rows[3]["random"] == "12; 0.29"
    assert page.ids[0] == "1-run"


def test_the_command_gives_the_same_settings_again(tmp_path: Path) -> None:
    changes = {"peers": 8, "rotations": [0, 90], "test_samples": 50, "init": "common", "own_in_merge": False}
    settings = PRESETS["fashion-mnist-small"].settings.replace(changes)
    line = command(ExperimentRecord(settings, ("pens", "local"), (0, 1), (), "/data sets"))
    assert line.startswith("pens run fashion-mnist-small --methods pens,local --seeds 2 --data-dir '/data sets' --set ")
    words = shlex.split(line)
    again = PRESETS[words[2]].settings.replace(parse_assignments(words[words.index("--set") + 1 :]))
    assert again == settings
    assert command(ExperimentRecord(PRESETS["digits"].settings, ("pens",), (0,))) == (
        "pens run digits --methods pens --seeds 1"
    )
    assert command(ExperimentRecord(PRESETS["digits"].settings, ("pens",), (3, 5), ("model",))) == (
        "pens.run('digits', methods=['pens'], seeds=[3, 5], model=YourNet)"
    )


def test_the_command_line_writes_a_report(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["report", str(whole / "run"), "--out", str(tmp_path / "deep" / "er.html")])
    assert exit_.value.code == 0
    assert "er.html; 46 pictures and tables in" in capsys.readouterr().out
    read_page(tmp_path / "deep" / "er.html")


def test_a_folder_of_run_directories_stands_for_them(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "run", tmp_path / "many" / "first")
    shutil.copytree(whole / "run", tmp_path / "many" / "second")
    (tmp_path / "many" / "a file").write_text("")
    page, *_ = write_report([tmp_path / "many"], tmp_path / "report.html")
    assert '<p class="run">first, second</p>' in page.read_text()


def test_foreign_and_damaged_folders_are_refused_in_words(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"

    def refused(error: type[PensError], reason: str, *folders: Path, to: Path = out) -> None:
        with pytest.raises(error, match=reason):
            write_report(folders, to)
        assert not out.exists()

    refused(RunDirError, "there is no folder", tmp_path / "nowhere")
    refused(RunDirError, "named twice", whole / "run", whole / "run" / ".." / "run")
    made_study(tmp_path / "damaged", SETTINGS, {"local": [0.5]})
    for name in ("history.parquet", "pairs.parquet", "result.json"):
        path = tmp_path / "damaged" / "local-seed0" / name
        bytes_ = path.read_bytes()
        path.write_bytes(bytes_[: len(bytes_) // 2])
        refused(RunDirError, name, tmp_path / "damaged")
        path.write_bytes(bytes_)
    path = tmp_path / "damaged" / "local-seed0" / "result.json"
    result = json.loads(path.read_text())
    for key, value in (("accuracy", [0.5]), ("clusters", [0, 0, 0, 1, 1, 7]), ("accuracy", [float("nan")] * 6)):
        path.write_text(json.dumps({**result, key: value}))
        refused(RunDirError, "do not belong together", tmp_path / "damaged")
    ExperimentDir(tmp_path / "begun").create(ExperimentRecord(SETTINGS, ("pens",), (0,)))
    refused(RunDirError, "no run is complete yet", tmp_path / "begun")
    (tmp_path / "thesis.html").write_text("precious")
    refused(ReportError, "is not a report: choose another --out", whole / "run", to=tmp_path / "thesis.html")
    refused(ReportError, "is a folder", whole / "run", to=tmp_path)
    refused(ReportError, "cannot be written", whole / "run", to=tmp_path / "thesis.html" / "report.html")


EITHER = "the merged or the fine-tuned model, whichever a peer's validation data prefer"


def test_the_upper_bound_is_the_oracle_that_tests_the_same_model(tmp_path: Path) -> None:
    """Like with like: pens+ tests merged or fine-tuned models, and so does oracle+."""
    accuracies = {"pens+": [0.62, 0.63, 0.64], "oracle": [0.5, 0.51, 0.52], "oracle+": [0.6, 0.61, 0.62]}
    made_study(tmp_path / "run", SETTINGS, {**accuracies, "local": [0.3, 0.31, 0.32]})
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    assert "oracle+, which is told the clusters" in text
    assert "oracle, which is told the clusters" not in text
    assert f"pens+ tests {EITHER}, while oracle tests the model that a peer fine-tuned from it" in text


def test_a_method_that_tests_otherwise_is_said_to(whole: Path, tmp_path: Path) -> None:
    accuracies = {"pens+": [0.62, 0.63], "oracle": [0.58, 0.581], "random": [0.5, 0.51], "local": [0.3, 0.31]}
    made_study(tmp_path / "run", SETTINGS, accuracies)
    write_report([tmp_path / "run"], tmp_path / "report.html")
    text = read_page(tmp_path / "report.html").text
    assert f"pens+ tests {EITHER}, while oracle and random test the model that a peer fine-tuned from it" in text
    said = text.partition("pens+ runs with ")[2].partition(", in place of")[0]
    assert said == "neighbours_by = levels, step2_model = best, alone_rounds = 20 and validated = either"
    made_study(tmp_path / "merged", SETTINGS.replace({"validated": "merged"}), accuracies)
    write_report([tmp_path / "merged"], tmp_path / "report.html")
    assert "The choice of neighbours is not the only difference" not in read_page(tmp_path / "report.html").text


def test_two_experiments_are_paired_by_seed_and_told_apart(tmp_path: Path) -> None:
    made_study(tmp_path / "a", SETTINGS, {"local": [0.3, 0.4], "pens": [0.5, 0.6]})
    made_study(tmp_path / "b", SETTINGS.replace({"init": "common"}), {"local": [0.35, 0.45], "random": [0.4, 0.4]})
    write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "report.html")
    assert "2 experiments side by side, which differ in init:" in read_page(tmp_path / "report.html").text
    rows = rows_of(tmp_path / "report_files" / "overview.csv")
    assert [row["experiment"] for row in rows] == ["a", "… its cost", "b", "… its cost", "difference"]
    assert "init = common" in rows[2]["setting"]
    first, second = (
        [run.mean_accuracy for run in ExperimentDir(tmp_path / name).results() if run.method == "local"]
        for name in "ab"
    )
    assert rows[4]["local"] == interval([b - a for a, b in zip(first, second, strict=True)]).signed()
    assert rows[4]["pens"] == rows[4]["random"] == "–"


def test_where_peers_ask_for_losses_a_report_says_why_their_work_is_not_shown(tmp_path: Path) -> None:
    """Of these runs the totals are on record: they are not older than anything."""
    pens.run(
        {**TINY, "rounds": 2},
        methods="dac,random",
        model=TinyNet,
        data=tiny_dataset(),
        device="cpu",
        out=tmp_path / "run",
    )
    notes = " ".join(costs_section(read_studies([tmp_path / "run"])[0]).notes)
    assert "The picture over work lacks dac: peers ask for losses, which is on record as a total" in notes
    assert "older" not in notes
