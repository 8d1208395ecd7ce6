# SPDX-License-Identifier: Apache-2.0
"""With which settings each method runs in each scenario, and which methods a scenario cannot have."""

from __future__ import annotations

from pathlib import Path

import pytest

from pens.comparing.file import read_comparison
from pens.comparing.scenes import Choice, Scene, scenes_of
from pens.errors import SettingsError
from pens.experiment.presets import preset
from pens.planning.shared_data import SharedData
from tests.comparing.files import CLINICS, HEAD, written


def scenes(folder: Path, text: str, choice: Choice = Choice()) -> list[Scene]:  # noqa: B008
    return scenes_of(read_comparison(written(folder, text)), SharedData(), choice)


def test_the_nearer_place_prevails(tmp_path: Path) -> None:
    text = """
    methods = ["local", "random", "pens"]
    [settings]
    preset = "digits"
    lr = 0.1
    rounds = 3
    patience = 4
    [method.random]
    rounds = 6
    weight_decay = 0.5
    [scenarios.a]
    rounds = 5
    [scenarios.a.method.random]
    weight_decay = 0.6
    [scenarios.b]
    """
    first, second = scenes(tmp_path, text, Choice(changed={"gossip.rounds": 9, "stopping.patience": 8}))
    base = preset("digits").settings.scenario.peers
    said = [first.settings.training.lr, first.settings.gossip.rounds, first.settings.stopping.patience]
    assert said == [0.1, 9, 8]
    assert first.settings.scenario.peers == base
    assert first.methods["local"] == first.settings
    own = first.methods["random"]
    assert (own.gossip.rounds, own.training.weight_decay, own.stopping.patience) == (6, 0.6, 8)
    assert second.methods["random"].training.weight_decay == 0.5
    assert first.own == {"random": {"gossip.rounds": 6, "training.weight_decay": 0.6}}
    assert [sorted(m for m, _ in wanted.runs) for wanted in first.wanted()] == [["local", "pens"], ["random"]]


def test_peers_test_what_their_validation_data_prefer_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    text = 'methods = ["random"]\n{}[settings]\npreset = "digits"\n[scenarios.a]\n[scenarios.b]\nvalidated = "merged"\n'
    for said, first in (("", "either"), ('tested = "trained"\n', "trained")):
        a, b = scenes(tmp_path, text.format(said))
        assert (a.settings.stopping.validated, b.settings.stopping.validated) == (first, "merged")


def test_who_needs_clusters_is_left_out_where_there_are_none(tmp_path: Path) -> None:
    text = f"""
    methods = ["local", "oracle"]
    {HEAD}
    [scenarios.known]
    [scenarios.dirichlet]
    partition = "dirichlet"
    [scenarios.lonely]
    partition = "groups"
    sizes = [3, 1]
    """
    known, skew, lonely = scenes(tmp_path, text)
    assert (list(known.methods), known.left_out) == (["local", "oracle"], {})
    assert (list(skew.methods), skew.left_out) == (["local"], {"oracle": "its clusters are not known"})
    assert lonely.left_out == {"oracle": "a peer is alone in its cluster"}
    with pytest.raises(SettingsError, match="nothing is left to compare"):
        scenes(tmp_path, text, Choice(scenarios=("dirichlet",), methods=("oracle",)))
    with pytest.raises(SettingsError, match="no scenario 'diriclet', did you mean 'dirichlet'"):
        scenes(tmp_path, text, Choice(scenarios=("diriclet",)))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[scenarios.a.method.pens]\ntrain_per_peer = 3", "scenario a, method pens: train_per_peer is set for this"),
        ('[scenarios.a.method.pens]\nnet = "mlp"', "all methods of a scenario have the same data, network"),
        ("[scenarios.a.method.pens]\nn_sampled = 9", "scenario a, method pens: n_sampled = 9, but each peer can hear"),
        ('[scenarios.a.method.pens]\ntopology = "ring"\nn_sampled = 3', "each peer can hear at most 2 others"),
        ("[scenarios.a]\npeers = 5", "scenario a: .*2 rotations need"),
        ('[scenarios.a]\nlr = "much"', "scenario a: lr = 'much'"),
    ],
)
def test_other_mistakes_are_refused_by_scenario_and_method(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        scenes(tmp_path, f'methods = ["local", "pens"]\n{HEAD}\n{more}\n')


def test_seeds_of_tuning_are_not_reported(tmp_path: Path) -> None:
    text = f'methods = ["local"]\n{HEAD}\n[scenarios.a]\n[tuned]\nseeds = [1000, 1001]\n'
    assert scenes(tmp_path, text, Choice(seeds=(4,)))[0].seeds == (4,)
    with pytest.raises(SettingsError, match="seed 1001 is both tuned with and reported"):
        scenes(tmp_path, text, Choice(seeds=(4, 1001)))


def test_own_peers_are_counted_and_settings_fit_themselves_to_them(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    written(tmp_path / "data", CLINICS, "clinics.csv")
    text = """
    methods = ["local", "random", "oracle"]
    [scenarios.clinics]
    source = "data/clinics.csv"
    rounds = 3
    """
    (scene,) = scenes(tmp_path, text)
    assert (scene.settings.scenario.peers, scene.settings.gossip.n_peers) == (5, 2)
    assert scene.settings.data.source == str(tmp_path / "data" / "clinics.csv")
    assert scene.left_out == {"oracle": "its clusters are not known"}
    assert scene.settings.stopping.patience == preset("own").settings.stopping.patience
