# SPDX-License-Identifier: Apache-2.0
"""Presets of other papers: what was published stands in them, and they say where it comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pens
from pens.data.samples import Dataset, Samples
from pens.errors import SettingsError
from pens.experiment.presets import PRESETS, choices_in, preset, resolve_settings
from pens.experiment.published import PUBLISHED
from pens.methods.dac import DacSettings
from pens.methods.names import check_methods, participants
from pens.partitions.label_laws.classes import ClassesSettings
from pens.partitions.partition import build_federation, partition_of
from pens.settings.catalogue import as_toml
from pens.settings.tree import Settings


def tiny(name: str, train: int, test: int) -> Dataset:
    """As many samples as the real data set has, of the same classes, four pixels each."""
    parts = (Samples(np.zeros((n, 1, 2, 2), np.float32), np.arange(n) % 10) for n in (train, test))
    return Dataset(name, *parts)


SIZES = {"cifar-10": (50_000, 10_000), "fashion-mnist": (60_000, 10_000)}


@pytest.mark.parametrize("name", [preset.name for preset in PUBLISHED])
def test_presets_of_other_papers_fit_their_data_and_say_where_they_come_from(name: str) -> None:
    chosen = preset(name)
    settings, sizes = chosen.settings, partition_of(chosen.settings).cluster_sizes(chosen.settings)
    federation = build_federation(tiny(settings.data.source, *SIZES[settings.data.source]), settings, 0)
    assert federation.smallest_cluster == (min(sizes.values()) if sizes else None)
    methods = ["local", "random", "pens", "dac", *(["oracle"] if sizes else [])]
    check_methods(settings, methods, participants(settings))
    assert as_toml(settings, chosen.source).startswith(f"# {chosen.source.split()[0]} ")


def peers_by_cluster(name: str) -> dict[str, int]:
    settings = preset(name).settings
    return dict(partition_of(settings).cluster_sizes(settings) or {})


def test_what_dac_published() -> None:
    assert peers_by_cluster("dac-labels") == {"classes 0+1+8+9": 40, "classes 2+3+4+5+6+7": 60}
    assert peers_by_cluster("dac-covariate") == {"0°": 70, "180°": 20, "10°": 5, "350°": 5}
    for name in ("dac-labels", "dac-covariate"):
        settings = preset(name).settings
        scenario, training = settings.scenario, settings.training
        assert (scenario.peers, scenario.train_per_peer, scenario.val_per_peer) == (100, 400, 100)
        assert (settings.gossip.n_peers, settings.gossip.rounds) == (5, 100)
        assert (training.epochs, training.batch_size, training.optimizer) == (3, 8, "adam")
        assert settings.section(DacSettings).tau == 30
    assert preset("dac-labels").settings.section(ClassesSettings).class_groups == ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7))
    covariate = preset("dac-covariate").settings.scenario
    assert (covariate.interpolation, covariate.test) == ("nearest", "full")


@pytest.mark.parametrize(("first", "second"), [(16, 16), (24, 8), (30, 2)])
def test_what_facade_published(first: int, second: int) -> None:
    name = f"facade-{first}-{second}"
    settings = preset(name).settings
    scenario, training = settings.scenario, settings.training
    assert peers_by_cluster(name) == {"0°": first, "180°": second}
    assert scenario.train_per_peer + scenario.val_per_peer == 50_000 // 32
    assert (settings.model.net, scenario.test, settings.gossip.n_peers) == ("gn-lenet", "full", 4)
    assert (training.optimizer, training.lr, training.batch_size, training.epochs) == ("sgd", 0.01, 8, 1)
    steps = -(-scenario.train_per_peer // training.batch_size)
    assert settings.gossip.rounds == round(1200 * 10 / steps)


def test_dirichlet_presets_are_the_papers_cifar_10_but_for_the_partition() -> None:
    for alpha in (0.1, 0.3, 0.5):
        settings = preset(f"dirichlet-{alpha}").settings
        assert settings == PRESETS["cifar-10"].settings.replace({"partition": "dirichlet", "alpha": alpha})


def test_clusters_keep_their_proportions_with_other_numbers_of_peers() -> None:
    settings = preset("dac-covariate").settings.replace({"peers": 20})
    assert partition_of(settings).cluster_sizes(settings) == {"0°": 14, "180°": 4, "10°": 1, "350°": 1}


def test_a_source_is_printed_above_the_settings() -> None:
    text = as_toml(Settings(), "Source: a\nbook.\n\nNot from there: b.")
    assert text.startswith("# Source: a book.\n#\n# Not from there: b.\n#\n# Change what you like")


def test_a_file_may_name_methods_and_seeds_beside_its_settings(tmp_path: Path) -> None:
    """A path is relative to the file; settings do not see them. Settings of other forms name none."""
    file = tmp_path / "my.toml"
    file.write_text('methods = ["own.py:Own", "local"]\nseeds = [3, 5]\npreset = "digits"\n[gossip]\nrounds = 4\n')
    assert choices_in(file) == ((f"{tmp_path / 'own.py'}:Own", "local"), [3, 5])
    assert resolve_settings(str(file)) == preset("digits").settings.replace({"rounds": 4})
    file.write_text('methods = "local, pens"\n')
    assert choices_in(str(file)) == (("local", "pens"), None)
    assert choices_in("digits") == choices_in({"rounds": 3}) == choices_in(None) == (None, None)
    file.write_text("methods = [1]\n")
    with pytest.raises(SettingsError, match=r"my\.toml: methods = \[1\]: list names of methods"):
        choices_in(file)


def test_methods_and_seeds_of_a_file_are_run_unless_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('methods = "local"\nseeds = 2\npreset = "digits"\n[gossip]\nrounds = 1\n')
    few = {"peers": 4, "n_peers": 1, "n_sampled": 2, "m": 1}
    result = pens.run(tmp_path / "my.toml", overrides=few)
    assert [(run.method, run.seed) for run in result.runs] == [("local", 0), ("local", 1)]
    result = pens.run(tmp_path / "my.toml", overrides=few, methods="random", seeds=[7])
    assert [(run.method, run.seed) for run in result.runs] == [("random", 7)]
