# SPDX-License-Identifier: Apache-2.0
"""What a comparison says of made-up runs: by hand, as files, as a table and as a picture."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import matplotlib.image
import numpy as np
import pytest
from rich.console import Console
from scipy import stats

from pens.comparing.file import read_comparison
from pens.comparing.kept import from_json, load, to_csv, to_json
from pens.comparing.picture import findings_picture, write_files
from pens.comparing.results import Findings, findings
from pens.comparing.scenes import Scene, scenes_of
from pens.comparing.show import findings_markdown, findings_notes, findings_table
from pens.errors import ReportError
from pens.planning.shared_data import SharedData
from pens.planning.store import RunStore
from pens.report.analysis import SeedScores, all_differences
from pens.storage.runlog import ExperimentRecord
from pens.tasks.metric import ACCURACY
from tests.comparing.files import HEAD, written
from tests.report.made import made_run

LEVELS = {"local": 0.50, "random": 0.60, "pens": 0.70}
FILE = f"""
methods = ["local", "random", "pens", "oracle"]
seeds = {{seeds}}
{HEAD}
[method.random]
lr = 0.5
[scenarios.rotation]
[scenarios.skew]
partition = "dirichlet"
"""


def made(folder: Path, seeds: int = 4, levels: dict[str, float] | None = None) -> tuple[Findings, list[Scene]]:
    """A comparison whose runs are made up: means over peers rise with the seed, and by fixed steps with the method."""
    file = read_comparison(written(folder, FILE.format(seeds=seeds)))
    scenes, store = scenes_of(file, SharedData()), RunStore(folder / "out", "compare")
    for scene in scenes:
        for method, level in (levels or LEVELS).items():
            settings = scene.methods[method]
            place = store.take(ExperimentRecord(settings, (method,), tuple(range(seeds))))
            for seed in range(seeds):
                run = made_run(settings, method, seed, level)
                score = level + 0.01 * seed + 0.002 * (seed % 2) * len(method) + np.array([0.1, 0.1, -0.1, -0.1])
                clusters = (0, 0, 1, 1) if scene.name == "rotation" else None
                names = run.cluster_names if clusters else ()
                run = replace(run, score=score, clusters=clusters, cluster_names=names, tested_forms=("merged",) * 4)
                place.run(method, seed).save(run)
    return findings(file, scenes, store), scenes


def test_findings_by_hand(tmp_path: Path) -> None:
    found, _ = made(tmp_path)
    rotation, skew = found.scenarios
    assert [each.method for each in rotation.methods] == ["local", "random", "pens", "oracle"]
    local = rotation.methods[0]
    expected = [0.5, 0.51 + 0.002 * 5, 0.52, 0.53 + 0.002 * 5]
    assert local.values["score"] == pytest.approx(expected)
    score = local.over_seeds("score", rotation.measure)
    worst = local.over_seeds("worst_cluster", rotation.measure)
    assert score
    assert worst
    assert score.mean == pytest.approx(np.mean(expected))
    half = stats.t.ppf(0.975, 3) * np.std(expected, ddof=1) / 2
    assert score.half_width == pytest.approx(half)
    assert worst.mean == pytest.approx(np.mean(expected) - 0.1)
    assert local.values["gap"] == pytest.approx([0.2] * 4)
    assert local.values["fair"] == pytest.approx([(2 * value + 0.8) / 3 for value in expected])
    assert local.form == "merged 100 %"
    assert rotation.methods[1].own == {"training.lr": 0.5}
    assert rotation.clusters == {"0°": 2, "180°": 2}
    assert skew.methods[0].values["gap"] == (None,) * 4
    assert (skew.left_out, skew.clusters) == ({"oracle": "its clusters are not known"}, {})


def test_who_is_better_is_paired_by_seed_and_corrected_for_all_pairs(tmp_path: Path) -> None:
    found, _ = made(tmp_path)
    rotation = found.scenarios[0]
    scores = {each.method: np.array(each.values["score"], float) for each in rotation.methods if each.seeds}
    pairs = [("pens", "local"), ("pens", "random"), ("random", "local")]
    plain = {pair: stats.ttest_rel(scores[pair[0]], scores[pair[1]]).pvalue for pair in pairs}
    for difference in rotation.differences:
        pair = difference.better, difference.other
        larger = [p for p in plain.values() if p <= plain[pair]]
        assert difference.p_t == pytest.approx(plain[pair])
        assert difference.p_holm == pytest.approx(
            max(p * (3 - rank) for rank, p in enumerate(sorted(plain.values())) if p in larger)
        )
    assert rotation.worse_than("pens") == ["local", "random"]
    assert rotation.worse_than("local") == []


def test_what_a_single_test_would_reject_may_not_survive_the_number_of_pairs() -> None:
    """The differences 1, 2, 5 and 4 points: t = 3.29 with three degrees of freedom, p = 0.046."""
    base = {0: 0.5, 1: 0.5, 2: 0.5, 3: 0.5}
    better = {0: 0.51, 1: 0.52, 2: 0.55, 3: 0.54}
    noise = {0: 0.58, 1: 0.47, 2: 0.54, 3: 0.50}
    scores = [SeedScores(name, of, ACCURACY) for name, of in (("a", base), ("b", better), ("c", noise))]
    (alone,) = all_differences(scores[:2])
    assert alone.p_t == alone.p_holm == pytest.approx(0.0462, abs=1e-4)
    assert alone.is_significant
    among = next(each for each in all_differences(scores) if each.better == "b" and each.other == "a")
    assert among.p_holm == pytest.approx(3 * 0.0462, abs=3e-4)
    assert not among.is_significant


def test_two_seeds_have_no_verdict(tmp_path: Path) -> None:
    found, _ = made(tmp_path, seeds=2)
    assert found.scenarios[0].worse_than("pens") == []
    notes = " ".join(findings_notes(found))
    assert "no interval and no verdict" in notes
    assert "Holm" not in notes
    assert "60.0 ±" not in findings_markdown(found)


def test_files_say_all_and_are_read_again(tmp_path: Path) -> None:
    found, _ = made(tmp_path)
    files = write_files(found, tmp_path / "out")
    assert [path.suffix for path in files] == [".json", ".csv", ".svg", ".png"]
    again = load(tmp_path / "out")
    assert to_json(again) == to_json(found)
    assert findings_markdown(again) == findings_markdown(found)
    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert len(rows) == 2 * 3 * 4
    first = rows[0]
    assert (first["scenario"], first["method"], first["seed"]) == ("rotation", "local", "0")
    assert (float(first["score"]), float(first["gap"])) == pytest.approx((0.5, 0.2))
    assert rows[-1]["gap"] == ""
    pens = next(each for each in to_json(found)["scenarios"][0]["methods"] if each["method"] == "pens")
    assert pens["better_than"] == ["local", "random"]
    picture = matplotlib.image.imread(files[3])
    assert picture.shape[1] == int((560 + 28) / 72 * 160)
    assert picture[..., :3].std() > 0.05  # something is drawn
    with pytest.raises(ReportError, match="no such file"):
        load(tmp_path / "none")
    (tmp_path / "comparison.json").write_text(json.dumps({**to_json(found), "format": 9}))
    with pytest.raises(ReportError, match="not a comparison"):
        load(tmp_path)
    with pytest.raises(ValueError, match="its format is 1 by me"):
        from_json({**to_json(found), "made_by": "me"})


@pytest.mark.parametrize("width", [70, 100, 160])
def test_the_table_fits_and_keeps_its_numbers_whole(tmp_path: Path, width: int) -> None:
    found, _ = made(tmp_path)
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(findings_table(found, width))
    text = captured.get()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert "52.0 ± 2.6" in text  # local: 50, 52, 52 and 54
    assert ("worst" in text) == (width > 40)
    assert ("MB" in text) == (width >= 160)


def test_notes_say_who_is_left_out_and_what_is_missing(tmp_path: Path) -> None:
    found, _ = made(tmp_path)
    notes = findings_notes(found)
    assert "rotation: significantly better, of 3 pairs: random > local; pens > local, random." in notes
    assert "skew: left out oracle, because its clusters are not known." in notes
    assert "rotation: not complete: oracle (4) of 4 seeds each." in notes
    assert sum("Fair accuracy" in note for note in notes) == 1
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in findings_markdown(found).splitlines()]
    assert {len(row) for row in table} == {len(table[0])}
    assert table[0][-1] == "significantly better than"
    assert [row[-1] for row in table if row[1] == "pens"] == ["local, random"] * 2


def test_the_picture_shows_every_method_of_every_scenario(tmp_path: Path) -> None:
    found, _ = made(tmp_path)
    root = ElementTree.fromstring(findings_picture(found))
    texts = [element.text for element in root if element.tag.endswith("text")]
    assert [texts.count(name) for name in ("rotation", "skew", "local", "random", "pens", "oracle")] == [
        1,
        1,
        2,
        2,
        2,
        0,
    ]
    assert "42.0" in texts  # the worst cluster of local, ten points below its mean
