# SPDX-License-Identifier: Apache-2.0
"""docs/comparing.md: its file and its commands work; the comparisons of the repository can be read."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from pens.comparing.file import read_comparison
from pens.comparing.scenes import scenes_of
from pens.comparing.show import _columns
from pens.errors import SettingsError
from pens.experiment.presets import PRESETS
from pens.parts import METHODS
from pens.planning.shared_data import SharedData
from pens.tuning.search import trials_of
from pens.tuning.wishes import wishes_of
from tests.comparing.test_command import pens
from tests.comparing.test_results import made

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "comparing.md").read_text(encoding="utf-8")
FILES = sorted((ROOT / "comparisons").glob("*.toml"))


def test_the_example_is_planned_as_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example, tuning = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    Path("example.toml").write_text(example)
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    planned = [line for line in commands if line.endswith("--dry-run")]
    compared, tuned = (pens(capsys, *shlex.split(line)[1:]) for line in planned)
    assert "68 runs in all" in compared  # six methods, three scenarios, four seeds; no oracle in the last
    assert "dirichlet: left out oracle" in compared
    assert "68 runs in all" in tuned  # four trials instead of four seeds
    Path("tuned.toml").write_text(example.partition("[tuning]")[0] + tuning)
    file = read_comparison(Path("tuned.toml"))
    assert wishes_of(file, tmp_path).of_method["dac"].keys() == {"dac.tau", "gossip.n_peers"}
    assert not list(tmp_path.glob("runs*"))


def test_every_column_is_explained(tmp_path: Path) -> None:
    found, _ = made(tmp_path)
    for column in _columns(found):
        assert re.search(rf"^\| .*{re.escape(column.heading.replace(chr(10), ' ').removesuffix(' %'))}", PAGE, re.M)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_comparisons_of_the_repository_can_be_run(path: Path) -> None:
    """Those that name a preset or a method that is not there yet are only read as TOML."""
    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    named = {table["preset"] for table in (*tree["scenarios"].values(), tree.get("settings", {})) if "preset" in table}
    if named <= set(PRESETS) and set(tree["methods"]) <= set(METHODS.built_in):
        file = read_comparison(path)
        wishes = wishes_of(file, path.parent)
        for scene in scenes_of(file, SharedData()):
            assert len(list(trials_of(scene, wishes))) == wishes.trials * len(scene.methods)
    else:
        with pytest.raises(SettingsError, match="unknown"):
            scenes_of(read_comparison(path), SharedData())
    assert path.name in PAGE


def test_all_comparisons_are_there() -> None:
    assert {path.stem for path in FILES} == {"dac", "facade", "dirichlet", "rotation", "digits"}
