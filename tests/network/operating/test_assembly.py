# SPDX-License-Identifier: Apache-2.0
"""A peer's file and its data → a node: what each peer is told by its own samples, and what its card says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pens.errors import SettingsError
from pens.inference.network_form import NetworkForm
from pens.network.certificates.names import peer_id
from pens.network.members.agreement import compare, differing, why_apart
from pens.network.node.learning import ThreadBench
from pens.network.node.node import Node
from pens.network.operating.assembly import build_node, load_holding
from pens.network.operating.peer_config import read_peer_config
from pens.network.transport.memory import MemoryNetwork
from tests.network.members.notaries import FakeAuthority

DATA = """
import numpy as np
import torch
from pens import PeerData, Samples
def samples(count):
    return Samples(np.random.default_rng(0).random((count, 1, 4, 4), np.float32), np.arange(count) % 3)
def small():
    return PeerData(samples(20), samples(5))
def large():
    return samples(900), samples(400), samples(10)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(16, 3)
    def forward(self, x):
        return self.out(x.flatten(1))
"""

PEER = """
[peer]
name = "hospital-a"
model = "mine.py:Net"
device = "cpu"
[data]
source = "mine.py:{function}"
num_classes = 3
[engine]
compile = "never"
"""


def node_of(folder: Path, text: str) -> Node:
    (folder / "mine.py").write_text(DATA)
    (folder / "peer.toml").write_text(text)
    config = read_peer_config(folder / "peer.toml")
    transport, bench = MemoryNetwork().join("hospital-a"), ThreadBench()
    try:
        return build_node(config, load_holding(config), transport, FakeAuthority().admit("hospital-a"), peer_id, bench)
    finally:
        bench.close()


@pytest.mark.parametrize(("function", "epochs"), [("small", 1250 // 25 + 1), ("large", 1)])
def test_epochs_of_step_one_follow_the_samples_that_the_peer_holds(tmp_path: Path, function: str, epochs: int) -> None:
    node = node_of(tmp_path, PEER.format(function=function))
    assert node.peer.plan.search
    assert node.peer.plan.search.epochs == epochs
    assert json.loads((tmp_path / "state" / "peer.json").read_text())["step1_epochs"] == epochs


def test_the_card_says_which_parts_are_the_peers_own(tmp_path: Path) -> None:
    node_of(tmp_path, PEER.format(function="small"))
    assert json.loads((tmp_path / "state" / "peer.json").read_text())["own_parts"] == ["model", "data"]


def test_the_card_of_a_table_has_the_network_and_the_peers_own_shift_and_scale(tmp_path: Path) -> None:
    """Of ages 1 and 3, whichever samples are for training: mean 2, deviation 1."""
    rows = [f"{age},{'ill' if age > 2 else 'well'},{part}" for part in ("train", "val", "test") for age in (1, 3)]
    (tmp_path / "mine.csv").write_text("\n".join(["age,outcome,split", *rows]))
    text = PEER.replace('model = "mine.py:Net"\n', "").replace("num_classes = 3", 'target_column = "outcome"\nCLASSES')
    text = text.replace("mine.py:{function}", "mine.csv")
    node_of(tmp_path, text.replace("CLASSES", 'classes = ["well", "ill"]'))
    card = json.loads((tmp_path / "state" / "peer.json").read_text())
    assert card["preparation"] == {"columns": ["age"], "lost": True}  # others may be shown this
    kept = json.loads((tmp_path / "state" / "preparation.json").read_text())
    assert kept == {"columns": ["age"], "standards": [{"shift": [2.0], "scale": [1.0]}]}
    form = NetworkForm.from_json(card["network"])
    assert (form.net, form.sample_shape, form.class_names) == ("auto", (1,), ("well", "ill"))
    for source in ("mine.csv", "load.py:load"):  # a function that returns what the file holds is read alike
        (tmp_path / "load.py").write_text("def load():\n    return [[1.0], [2.0], [3.0]], ['a', 'b', 'a']")
        with pytest.raises(SettingsError, match=r"labels are texts or codes, .* list all classes"):
            node_of(tmp_path, text.replace("CLASSES", "").replace("mine.csv", source))


SIZED = """
class Sized(torch.nn.Sequential):
    def __init__(self, shape, num_classes):
        super().__init__(torch.nn.Flatten(), torch.nn.Linear(shape[1] * shape[2], num_classes))
"""


def test_labels_that_a_peer_has_never_seen_do_not_change_the_shape_of_its_network(tmp_path: Path) -> None:
    """An own network is given the number of classes in the federation, and a peer does not guess it from its labels."""
    text = PEER.format(function="small").replace("mine.py:Net", "sized.py:Sized")
    (tmp_path / "sized.py").write_text("import torch\n" + SIZED)
    node = node_of(tmp_path, text.replace("num_classes = 3", "num_classes = 7"))
    assert node.learners.executor.engine.network.stored.size == 7 * 16 + 7
    with pytest.raises(SettingsError, match=r"data\.num_classes is not set: labels here go up to 2"):
        node_of(tmp_path, text.replace("num_classes = 3", ""))


def test_the_terms_of_a_peer_tell_what_its_models_need_and_nothing_of_its_samples(tmp_path: Path) -> None:
    """Worked out by hand for a linear network of 16 inputs and three classes."""
    node = node_of(tmp_path, PEER.format(function="small").replace("[engine]", '[gossip]\nwire = "int8"\n[engine]'))
    told = {part.name: part.items for part in node.parts.terms.parts}
    settings = told.pop("settings")
    assert told == {
        "tensors": ("out.weight 3 × 16 float32", "out.bias 3 float32"),
        "sent tensors": ("all",),
        "inputs": ("shape 1 × 4 × 4", "real numbers"),
        "preparation": ("as given",),
        "outputs": ("3 without names",),
        "task": ("classification",),
        "notes": ("none",),
        "method": ("pens",),
    }
    assert node.parts.terms.sends == "int8"
    assert {"peer.seed = 0", "gossip.n_peers = 20", "pens.m = 2", 'model.init = "independent"'} <= set(settings)
    assert not any("wire" in item or str(tmp_path) in item for item in settings)


def test_methods_whose_models_come_with_notes_need_the_same_method(tmp_path: Path) -> None:
    text = PEER.format(function="small")
    terms = {}
    for method in ("pens", "random", "dac"):
        changed = text.replace('name = "hospital-a"', f'name = "hospital-a"\nmethod = "{method}"')
        terms[method] = node_of(tmp_path, changed).parts.terms
    assert why_apart(compare(terms["pens"], terms["random"])) is None
    assert "method: 'pens' here, 'random' there" in str(differing(compare(terms["pens"], terms["random"])))
    assert why_apart(compare(terms["pens"], terms["dac"])) == "notes: 'none' here, 'of dac' there"


def test_members_that_send_only_a_part_of_the_network_need_others_that_send_the_same(tmp_path: Path) -> None:
    """Otherwise the zeros that stand for the rest would be merged as if they were numbers."""
    text = PEER.format(function="small").replace('name = "hospital-a"', 'name = "hospital-a"\nmethod = "random"')
    whole = node_of(tmp_path, text).parts.terms
    part = node_of(tmp_path, text.replace("[engine]", '[gossip]\nmerge_only = ["out.bias"]\n[engine]')).parts.terms
    assert why_apart(compare(whole, part)) == "sent tensors: 'all' here, 'out.bias' there"


@pytest.mark.parametrize(("gate", "wary"), [("", True), ('gate = "auto"', True), ('gate = "off"', False)])
def test_real_peers_do_not_trust_models_unless_their_file_says_so(tmp_path: Path, gate: str, wary: bool) -> None:
    node = node_of(tmp_path, PEER.format(function="small") + f'[gossip]\nwire = "fp16"\n[trust]\n{gate}\nstrikes = 7\n')
    trust, rules = node.peer.plan.trust, node.learners.rules.trust
    assert (trust is not None) == (rules is not None) == wary
    if wary:
        assert trust
        assert rules
        assert (trust.strikes, trust.merges, rules.margin, rules.sent_as) == (7, 20, 2.0, "fp16")
