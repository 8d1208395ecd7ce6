# SPDX-License-Identifier: Apache-2.0
"""What a method makes of the settings holds for all of its run; what all methods share, it is refused to change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import pens
from pens import rng
from pens.errors import SettingsError
from pens.methods.names import check_methods, check_networked, participants
from pens.methods.random import Random
from pens.methods.spec import RunSpec
from pens.network.node.node import Node
from pens.parts import METHODS
from pens.settings.tree import Settings
from tests.byhand import CountingEngine
from tests.byhand import federation as federation_by_hand
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.network.operating.test_assembly import PEER, node_of


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that a test gives are forgotten after it."""
    for name in ("_found", "_references", "_given"):
        monkeypatch.setattr(METHODS, name, {})


class Setting(Random):
    """Gossip whose `resolve` sets some values."""

    def __init__(self, values: Mapping[str, Any], name: str = "setting") -> None:
        self.values, self.name = values, name

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace(self.values)


def given(values: Mapping[str, Any]) -> str:
    """The name of a method that sets these values, and that can be found by it."""
    METHODS.add(method := Setting(values))
    return method.name


@pytest.mark.parametrize(("of_all", "of_one"), [("independent", "common"), ("common", "independent")])
def test_first_models_are_those_that_the_method_asks_for(
    of_all: str, of_one: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All peers of one method begin with the same weights, those of another each with its own, in either order."""
    engine = CountingEngine(3)
    engine.network.new_row = lambda key: torch.tensor([float(key % 1009), 0.0, 0.0])
    monkeypatch.setattr("pens.experiment.wiring.new_engine", lambda *_: engine)
    values = {**TINY, "n_peers": 1, "rounds": 1, "init": of_all}
    data = federation_by_hand((0, 0, 0), [[0.0] * 3] * 3)
    METHODS.add(Setting({"init": of_one}))
    for methods in (["setting", "local"], ["local", "setting"], ["setting"]):
        engine.trainings = []
        pens.run(values, methods=methods, data=data, model=nn.Identity)
        for place, method in enumerate(methods):
            init = of_all if method == "local" else of_one
            begun = [training.before[0] for training in engine.trainings[6 * place : 6 * place + 3]]
            assert len(set(begun)) == (1 if init == "common" else 3)


SHARED = [
    {"peers": 4},
    {"net": "paper-cnn"},
    {"precision": "fp32"},
    {"half_turn": "flip"},
    {"partition": "dirichlet"},
    {"groups.sizes": [5, 1]},
]


@pytest.mark.parametrize("values", SHARED, ids=str)
def test_what_all_methods_share_is_not_for_a_method_to_change(values: dict[str, Any]) -> None:
    (setting,) = values
    settings = Settings().replace({**TINY, "partition": "groups", "groups.sizes": [3, 3]})
    name = setting.rpartition(".")[2]
    with pytest.raises(SettingsError, match=rf"^method 'setting': its resolve sets {name}=.*: set it in the experim"):
        check_methods(settings, [given(values)], participants(settings))


def test_what_sets_the_same_values_changes_nothing() -> None:
    settings = Settings().replace({**TINY, "partition": "groups", "groups.sizes": [3, 3]})
    check_methods(settings, [given({"peers": 6, "groups.sizes": [3, 3], "init": "common"})], participants(settings))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"merge_only": ["nope"]}, "nope"),
        ({"topology": "ring"}, "n_peers = 3, but each peer can hear at most 2 others"),
        ({"schedule": "async"}, "pull_from = latest, but schedule = async"),
    ],
)
def test_what_a_method_sets_is_checked_before_anything_is_written(
    values: dict[str, Any], message: str, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"model": TinyNet, "data": tiny_dataset(), "device": "cpu", "out": tmp_path / "run"}
    settings = {**TINY, "n_peers": 3, "pull_from": "latest"}
    with pytest.raises(SettingsError, match=re.escape(message)):
        pens.run(settings, methods=["local", Setting(values)], **arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"schedule": "rounds"}, "real peers have no common rounds"),
        ({"expected": "uniform"}, "a real peer does not know how many peers could be sampled"),
        ({"merge": "weighted"}, "which real peers do not tell"),
        ({"topology": "ring"}, "real peers reach all members of their network"),
    ],
)
def test_real_peers_refuse_what_a_method_makes_of_settings(values: dict[str, Any], message: str) -> None:
    settings = Settings().replace({**TINY, "schedule": "async"})
    check_networked(settings, given({}))
    with pytest.raises(SettingsError, match=re.escape(message)):
        check_networked(settings, given(values))


METHOD = """
import pens
class Mine(pens.Method):
    name = "mine"
    networked = True
    def resolve(self, settings):
        return settings.replace({{{values}}})
"""


def real(folder: Path, values: str) -> Node:
    """A real peer whose method sets these values."""
    folder.mkdir(exist_ok=True)
    (folder / "method.py").write_text(METHOD.format(values=values))
    text = PEER.format(function="small").replace("[data]", 'method = "method.py:Mine"\n[data]')
    for name in ("_found", "_references", "_given"):
        getattr(METHODS, name).clear()
    return node_of(folder, text)


def test_a_real_peer_begins_with_the_model_that_its_method_asks_for(tmp_path: Path) -> None:
    first = {}
    for folder, values in (("own", ""), ("common", '"init": "common"')):
        node = real(tmp_path / folder, values)
        first[folder] = node.learners.models.read([node.learners.names.row(node.learning.current)])[0]
    engine, seed = node.learners.executor.engine, node.learners.rules.seed
    assert torch.equal(first["own"], engine.network.new_row(rng.key(seed, "init", node.peer.me)))
    assert torch.equal(first["common"], engine.network.new_row(rng.key(seed, "init")))


@pytest.mark.parametrize(
    ("values", "message"),
    [('"net": "paper-cnn"', "its resolve sets net=paper-cnn"), ('"merge_only": ["nope"]', "nope")],
)
def test_a_real_peer_refuses_it_before_anything_is_written(tmp_path: Path, values: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        real(tmp_path, values)
    assert not (tmp_path / "state").exists()


def test_a_finished_run_is_shown_whatever_its_method_set() -> None:
    """Only what is yet to run is refused."""
    assert RunSpec.of(Setting({"peers": 4}), Settings(), 0).settings.scenario.peers == 4
