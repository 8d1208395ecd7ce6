# SPDX-License-Identifier: Apache-2.0
"""Whatever is in a state file, a peer goes on from it or says in a sentence which file it is, and what to do."""

from __future__ import annotations

import functools
import itertools
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pens.errors import PensError, RunDirError
from pens.network.node.saved_state import check_saved
from pens.network.node.state import PeerFolder
from pens.storage.checkpoint import Checkpoint, encode_state
from tests.network.node.test_stopping import Life
from tests.network.virtual import run_virtually

STATE = "checkpoint.safetensors"
JUNK: list[Any] = [
    None,
    True,
    -1,
    0,
    3,
    2**63,
    10**400,
    -0.5,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "9",
    [],
    [[1, 2]],
    {},
]
REMEDIES = ("delete", "set peer.state", "restore a backup")


@functools.cache
def stopped() -> dict[str, bytes]:
    """The files of a peer that was stopped while it judged strangers: an answer is due, and an update waits."""
    for at in itertools.count(5):
        with TemporaryDirectory() as folder:
            assert not run_virtually(Life(Path(folder)).live(at))
            files = {name: (Path(folder) / name).read_bytes() for name in (STATE, "membership.json")}
        if state_in(files[STATE])[0]["due"]:
            return files
    raise AssertionError


def state_in(content: bytes) -> tuple[dict[str, Any], dict[str, Tensor]]:
    with TemporaryDirectory() as folder:
        (Path(folder) / STATE).write_bytes(content)
        return Checkpoint(Path(folder) / STATE, "").load() or ({}, {})


def goes_on_or_says(file: str, content: bytes) -> str:
    """What a peer says that finds this content in a state file; empty: it goes on."""
    with TemporaryDirectory() as folder:
        for name, whole in {**stopped(), file: content}.items():
            (Path(folder) / name).write_bytes(whole)
        try:
            run_virtually(Life(Path(folder)).live(at_most=12))
        except PensError as error:
            told = str(error)
            assert str(Path(folder) / file) in told
            assert any(remedy in told for remedy in REMEDIES)
            assert len(told) < 1000
            assert (Path(folder) / file).read_bytes() == content
            return told
    return ""


@settings(max_examples=25)
@given(st.sampled_from([STATE, "membership.json"]), st.floats(0, 1, exclude_max=True), st.integers(0, 8))
def test_a_damaged_file_is_named(file: str, part: float, bit: int) -> None:
    """Cut off anywhere, or with one bit turned over: in the state, each bit counts."""
    whole = stopped()[file]
    at = int(part * len(whole))
    damaged = whole[:at] if bit == 8 else whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
    assert goes_on_or_says(file, damaged) or file != STATE


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there are values in plain data."""
    yield path
    for key in data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ():
        yield from places(data[key], (*path, key))


def with_junk(data: dict[str, Any], luck: random.Random) -> dict[str, Any]:
    """A copy in which one value is something else, or not there.

    What only a behaviour reads stays as it is.
    """
    changed = json.loads(json.dumps(data))
    *way, last = luck.choice([place for place in places(data) if place and not is_left_alone(place)])
    held = functools.reduce(lambda part, key: part[key], way, changed)
    if luck.random() < 0.2:
        del held[last]
    else:
        held[last] = luck.choice(JUNK)
    return dict(changed)


def is_left_alone(place: tuple[Any, ...]) -> bool:
    return place[:2] == ("peer", "behaviour") or "answers" in place


def tampered(luck: random.Random) -> tuple[str, bytes]:
    """A file that somebody changed and signed again."""
    if luck.random() < 0.3:
        changed = with_junk(json.loads(stopped()["membership.json"]), luck)
        return "membership.json", json.dumps(changed).encode()
    state, tensors = state_in(stopped()[STATE])
    with TemporaryDirectory() as folder:
        path = Path(folder) / STATE
        if luck.random() < 0.8:
            Checkpoint(path, "").save(encode_state(with_junk(state, luck)), tensors)
        else:
            name = luck.choice(list(tensors))
            other = [tensors[name][:0], tensors[name][:, :0], tensors[name].reshape(-1), torch.zeros(3, 3)]
            Checkpoint(path, "").save(encode_state(state), {**tensors, name: luck.choice(other)})
        return STATE, path.read_bytes()


@pytest.mark.parametrize("number", range(25))
def test_a_file_that_somebody_changed_is_named_or_makes_no_difference(number: int) -> None:
    """The same changes in every run: docs/decisions/0083 says which others end a peer without words."""
    goes_on_or_says(*tampered(random.Random(number)))


@pytest.mark.slow
def test_many_changed_files() -> None:
    told = [goes_on_or_says(*tampered(random.Random(number))) for number in range(1500)]
    print(f"{sum(map(bool, told))} of {len(told)} are refused")
    assert any(told)


@pytest.mark.parametrize("junk", [b"", b"{", b"[]", b"[" * 100_000, b'{"name": "a"}', b'{"name": NaN, "seed": []}'])
def test_a_card_that_is_not_this_peers_is_named(tmp_path: Path, junk: bytes) -> None:
    (tmp_path / "peer.json").write_bytes(junk)
    with pytest.raises(RunDirError, match=f"{tmp_path}.*delete"):
        PeerFolder(tmp_path).create({"name": "a", "seed": 0})


def contradiction(name: str) -> tuple[bytes, dict[str, Tensor]]:
    """A state of which all values are of the right types, but which does not fit together."""
    state, tensors = state_in(stopped()[STATE])
    learners = state["learning"]["learners"]
    match name:
        case "models that are not held":
            state["jobs"][-1] = ["compare", [[4, 9]], 1]
        case "never made":
            state["jobs"].append(["drop", [0, -7], "unused"])
        case "there are no jobs":
            state["jobs"], state["peer"]["busy"] = [], True
        case "not answered":
            state["due"] = ["strangers", "strangers"]
        case "current model":
            state["learning"]["current"] = 999
        case "a later one is named":
            learners["learners"][0]["forms"]["trained"][1] = 999
        case "times of 1 are known":
            state["past"]["completed"] = [1.0]
        case "received models of":
            tensors["held"] = torch.zeros(99, 3)
        case "history has":
            tensors["history"] = tensors["history"][:, :2]
    return encode_state(state), tensors


@pytest.mark.parametrize(
    "what",
    [
        "models that are not held",
        "never made",
        "there are no jobs",
        "not answered",
        "current model",
        "a later one is named",
        "times of 1 are known",
        "received models of",
        "history has",
    ],
)
def test_a_state_that_contradicts_itself_is_never_written(tmp_path: Path, what: str) -> None:
    whole = stopped()[STATE]
    (tmp_path / STATE).write_bytes(whole)
    with pytest.raises(ValueError, match=what):
        PeerFolder(tmp_path).save(*contradiction(what))
    assert (tmp_path / STATE).read_bytes() == whole


def test_the_state_of_a_sound_peer_is_accepted() -> None:
    state, tensors = state_in(stopped()[STATE])
    check_saved(encode_state(state), tensors)


def test_a_state_of_an_older_form_is_refused_in_words(tmp_path: Path) -> None:
    """Version 0.1 knew judgements in place of questions: peers of before this change begin anew, and are told so."""
    state, tensors = state_in(stopped()[STATE])
    del state["due"]
    shutil.rmtree(tmp_path / "peer", ignore_errors=True)
    (tmp_path / "peer").mkdir()
    Checkpoint(tmp_path / "peer" / STATE, "").save(encode_state({**state, "judged": False}), tensors)
    with pytest.raises(RunDirError, match="by another version of pens"):
        run_virtually(Life(tmp_path / "peer").live())
