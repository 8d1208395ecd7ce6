# SPDX-License-Identifier: Apache-2.0
"""A peer's file: what is in it, and what is refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from pens.errors import DataError, SettingsError
from pens.network.operating.assembly import load_holding
from pens.network.operating.peer_config import parse_address, read_peer_config
from pens.network.transport.interface import Address
from pens.network.transport.outward import Ways, attached_address
from pens.parts import load_function

GOOD = """
preset = "digits"
[peer]
name = "hospital-a"
bootstrap = ["b.example.org:7400"]
[data]
share = 3
[pens]
m = 1
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "peer.toml"
    path.write_text(text)
    return path


def test_a_file_is_read_with_a_preset_beneath(tmp_path: Path) -> None:
    config = read_peer_config(write(tmp_path, GOOD), ("c.example.org:1",), tmp_path / "elsewhere")
    assert config.peer.name == "hospital-a"
    assert config.peer.bootstrap == ("b.example.org:7400", "c.example.org:1")
    assert config.settings.scenario.train_per_peer == 40
    assert config.settings.pens.m == 1
    assert config.settings.pens.admit
    assert config.settings.gossip.schedule == "async"
    assert config.settings.expected == "received"
    assert config.path(config.peer.state) == tmp_path / "elsewhere"
    assert config.path(config.peer.certificates) == tmp_path / "certs"


def test_strangers_can_be_kept_out(tmp_path: Path) -> None:
    assert not read_peer_config(write(tmp_path, GOOD + "admit = false\n")).settings.pens.admit


REFUSALS = {
    GOOD + "n_sampeld = 3\n": "unknown setting 'pens.n_sampeld', did you mean 'pens.n_sampled'?",
    GOOD.replace("name =", "nmae ="): "unknown setting 'peer.nmae', did you mean 'name'?",
    GOOD.replace('name = "hospital-a"', ""): "peer.name is not set",
    GOOD.replace("share = 3", ""): "[data] needs either `source` or `share`",
    GOOD.replace("share = 3", "share = 99"): "data.share = 99, but the scenario has peers = 20",
    GOOD.replace("7400", "x"): "is not an address: expected HOST:PORT",
    GOOD.replace("[data]", 'networks = ["10.0.0.1/8"]\n[data]'): "'10.0.0.1/8' is not a network",
    GOOD.replace("m = 1", "m = 8"): "every sampled model would be selected",
    GOOD.replace("[data]", "[date]"): "unknown section [date]",
    GOOD + '[gossip]\nschedule = "rounds"\n': "real peers have no common rounds",
    GOOD + 'expected = "uniform"\n': "expected = 'uniform'",
    GOOD + "[peer.x]\n": "unknown setting 'peer.x'",
    GOOD.replace("[data]", 'reachable = false\nadvertise = "a.example.org:7400"\n[data]'): "leave out one of the two",
    GOOD.replace("[data]", "reachable = false\nrelay = true\n[data]"): "peer.relay = True, which needs others to reach",
    GOOD.replace('bootstrap = ["b.example.org:7400"]', "reachable = false"): "name at least one member that it calls",
    GOOD.replace("[data]", 'proxy = "proxy:3128"\n[data]'): "is not a proxy: expected http://HOST:PORT",
    GOOD.replace("[data]", 'proxy = "http://proxy"\n[data]'): "is not an address: expected HOST:PORT",
    "peer = 3\n": "expected a section [peer]",
    "= 3": "not valid TOML",
}


@pytest.mark.parametrize("text", list(REFUSALS))
def test_what_cannot_work_is_refused_in_words(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as error:
        read_peer_config(write(tmp_path, text))
    assert REFUSALS[text] in str(error.value)


def test_a_peer_that_only_calls_out_tells_an_address_that_is_nobodys(tmp_path: Path) -> None:
    text = GOOD.replace("[data]", 'reachable = false\nproxy = "http://user:word@proxy:3128"\n[data]')
    peer = read_peer_config(write(tmp_path, text)).peer
    assert peer.own_address == attached_address("hospital-a")
    assert peer.ways == Ways(False, False, "http://user:word@proxy:3128")
    assert read_peer_config(write(tmp_path, GOOD)).peer.own_address == Address("0.0.0.0", 7400)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        read_peer_config(tmp_path / "none.toml")


def test_addresses() -> None:
    assert parse_address("a.example.org:7400") == Address("a.example.org", 7400)
    assert parse_address("[::1]:80") == Address("::1", 80)
    for wrong in ("a", "a:", ":1", "a:b", "a:70000"):
        with pytest.raises(ValueError, match="not an address"):
            parse_address(wrong)


def test_shares_are_those_of_the_scenario(tmp_path: Path) -> None:
    one = load_holding(read_peer_config(write(tmp_path, GOOD)))
    other = load_holding(read_peer_config(write(tmp_path, GOOD.replace("share = 3", "share = 13"))))
    assert (one.cluster, other.cluster) == ("0°", "180°")
    assert len(one.data.train) == 40
    assert one.num_classes == 10
    assert (one.data.train.x != other.data.train.x).any()


OWN = """
import numpy as np
from pens import Samples
def load():
    part = Samples(np.zeros((4, 2), np.float32), np.array([0, 1, 2, 1]))
    return part, part, part
def spoilt():
    train, val, _ = load()
    return train, Samples(np.array([[0.0, 1.0], [np.inf, 0.0]]), np.array([0, 1])), train
def wrong():
    return 3
def broken():
    return 1 / 0
def deeper():
    return Samples(np.array(["x"]).astype(int), np.zeros(1))
"""


def test_own_inputs_that_are_no_finite_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    config = read_peer_config(write(tmp_path, GOOD.replace("share = 3", 'source = "mine.py:spoilt"')))
    with pytest.raises(
        DataError, match=r"^the validation inputs of peer hospital-a: 1 of 2 samples .* sample 1, .* inf"
    ):
        load_holding(config)


def own_source(function: str, num_classes: int | None) -> str:
    classes = "" if num_classes is None else f"\nnum_classes = {num_classes}"
    return GOOD.replace("share = 3", f'source = "mine.py:{function}"{classes}')


def test_classes_are_stated_for_the_whole_federation(tmp_path: Path) -> None:
    """A peer without the top classes would otherwise build a smaller network than the others."""
    (tmp_path / "mine.py").write_text(OWN)
    assert load_holding(read_peer_config(write(tmp_path, own_source("load", 10)))).num_classes == 10
    with pytest.raises(
        SettingsError, match=r"data.num_classes is not set: labels here go up to 2, .*: set num_classes"
    ):
        load_holding(read_peer_config(write(tmp_path, own_source("load", None))))
    with pytest.raises(
        SettingsError, match=r"num_classes = 2, so labels are 0 to 1, but the training data have label 2"
    ):
        load_holding(read_peer_config(write(tmp_path, own_source("load", 2))))
    with pytest.raises(SettingsError, match=r"data.num_classes = 3, but digits has 10 classes: leave it out"):
        load_holding(read_peer_config(write(tmp_path, GOOD.replace("share = 3", "share = 3\nnum_classes = 3"))))
    (tmp_path / "net.py").write_text("def make():\n    pass\n")
    own_network = GOOD.replace("[data]\nshare = 3", 'model = "net.py:make"\n[data]\nsource = "mine.py:load"')
    assert load_holding(read_peer_config(write(tmp_path, own_network))).num_classes == 3


def test_a_data_function_that_fails_is_told_of_by_name_error_and_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    line = OWN.splitlines().index("    return 1 / 0") + 1
    config = read_peer_config(write(tmp_path, own_source("broken", 3)))
    with caplog.at_level("DEBUG", "pens"), pytest.raises(SettingsError) as refused:
        load_holding(config)
    place = f"{tmp_path / 'mine.py'}:{line}"
    assert f"data.source = 'mine.py:broken' failed: ZeroDivisionError: division by zero, at {place}" in str(
        refused.value
    )
    assert "Traceback" in caplog.text
    with pytest.raises(SettingsError, match=r"failed: ValueError: invalid literal .*mine.py:\d+\. Call it in Python"):
        load_holding(read_peer_config(write(tmp_path, own_source("deeper", 3))))


def test_data_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    config = read_peer_config(write(tmp_path, own_source("load", 3)))
    holding = load_holding(config)
    assert len(holding.data.train) == 4
    assert holding.test
    assert holding.num_classes == 3
    assert holding.cluster is None
    with pytest.raises(DataError, match="hospital-a: its data are a int"):
        load_holding(read_peer_config(write(tmp_path, own_source("wrong", 3))))
    for wrong in ("mine.py", "none.py:load", "mine.py:nothing", "no.such.module:load"):
        with pytest.raises(SettingsError, match=r"data\.source"):
            load_function(wrong, "data.source", tmp_path)
