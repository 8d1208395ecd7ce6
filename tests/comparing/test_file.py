# SPDX-License-Identifier: Apache-2.0
"""What a comparison's file may say, what is refused, and that it can be written again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pens.comparing.file import read_comparison
from pens.comparing.writing import as_toml
from pens.errors import SettingsError
from tests.comparing.files import written

WHOLE = """
methods = ["local", "pens+", "mine.py:Mine"]
seeds = [3, 5]
tested = "merged"

[settings]
preset = "digits"
rounds = 7
gossip.n_peers = 2

[method."pens+"]
lr = 0.1

[scenarios.rotation]

[scenarios."17:3"]
preset = "other.toml"
methods = ["local"]
partition = "groups"
sizes = [17, 3]

[scenarios."17:3".pens]
m = 1

[scenarios."17:3".method.local]
lr = 0.2
"""
MINE = """
import pens

class Mine(pens.Method):
    name = "compared-once"
    about = "gossip, as it stands"
"""


def test_a_file_says_what_is_compared_and_is_written_for_another_folder(tmp_path: Path) -> None:
    written(tmp_path, MINE, "mine.py")
    file = read_comparison(written(tmp_path, WHOLE))
    assert (file.name, file.methods, file.seeds) == ("mine", ("local", "pens+", "compared-once"), (3, 5))
    assert (file.tested, file.preset) == ("merged", "digits")
    assert file.settings == {"gossip.rounds": 7, "gossip.n_peers": 2}
    assert file.of_method == {"pens+": {"training.lr": 0.1}}
    first, second = file.scenarios
    assert (first.name, first.settings, file.methods_of(first)) == ("rotation", {}, file.methods)
    assert (second.name, second.preset) == ("17:3", str(tmp_path / "other.toml"))
    assert second.settings == {"scenario.partition": "groups", "groups.sizes": [17, 3], "pens.m": 1}
    assert (file.methods_of(second), second.of_method) == (("local",), {"local": {"training.lr": 0.2}})
    (tmp_path / "elsewhere").mkdir()
    whole = replace(file, tuned={"trials": 3, "seeds": [1000]})
    assert read_comparison(written(tmp_path / "elsewhere", as_toml(whole))) == whole


SCENE = '[scenarios.a]\npreset = "digits"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'methods = ["local"]\nseed = 3\n{SCENE}', "unknown key 'seed', did you mean 'seeds'"),
        (f'methods = ["lokal"]\n{SCENE}', "unknown method 'lokal', did you mean 'local'"),
        (f'methods = ["local", "local"]\n{SCENE}', "listed twice"),
        (f'methods = "local"\n{SCENE}', "give a list of names"),
        (SCENE, "methods is missing"),
        ('methods = ["local"]\n', "scenarios is missing"),
        (f'methods = ["local"]\nseeds = true\n{SCENE}', "give a number of seeds"),
        (f'methods = ["local"]\nseeds = [1, 1]\n{SCENE}', "different seeds"),
        (f'methods = ["local"]\ntested = "mergd"\n{SCENE}', "'mergd', did you mean 'merged'"),
        (f'methods = ["local"]\nsettings = 3\n{SCENE}', r"write it as a table, \[settings\]"),
        (f'methods = ["local"]\n{SCENE}round = 3\n', r"\[scenarios.a\] unknown setting 'round', did you mean 'rounds'"),
        (f'methods = ["local"]\n{SCENE}[scenarios.a.gosip]\nrounds = 3\n', r"unknown section \[gosip\], did you mean"),
        (
            f'methods = ["local"]\n{SCENE}[method.random]\nlr = 1\n',
            r"\[method.random\] is for a method that is not",
        ),
        (f'methods = ["local"]\n{SCENE}[scenarios.a.method.lcal]\nlr = 1\n', "did you mean 'local'"),
        (f'methods = ["local"]\nseeds = 1001\n{SCENE}[tuned]\nseeds = [1000]\n', "seed 1000 is both tuned with and"),
        (f'methods = ["local"]\n{SCENE}[tuned]\nseed = [1000]\n', "did you mean 'seeds'"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        read_comparison(written(tmp_path, text))
    assert str(refused.value).startswith(str(tmp_path / "mine.toml"))
