# SPDX-License-Identifier: Apache-2.0
"""Stop anywhere: a peer that is stopped at any job, or at any step of any write, goes on as if it had never been."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pens.errors import DiskError
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.node.state import PeerFolder
from pens.network.transport.codec import encode
from pens.network.transport.interface import Parcel, Reception
from pens.partitions.rotation import rotated_federation
from pens.protocol.messages import Ask, Blend
from pens.settings.tree import Settings
from pens.storage.files import DISK, Disk
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.network.disks import FAULTS, Fault, FaultyDisk, Killed
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import Log


class StoppingBench:
    """Work is done at once; during the call of a given number, somebody asks the node to stop."""

    def __init__(self, stop: asyncio.Event, at: int | None, before: bool) -> None:
        self._stop, self._at, self._before = stop, at, before
        self.calls = 0

    async def do(self, work: Callable[[], None], epochs: int) -> None:
        mine, self.calls = self.calls == self._at, self.calls + 1
        if mine and self._before:
            self._stop.set()
            await asyncio.sleep(0.001)
        work()
        if mine:
            self._stop.set()
        await asyncio.sleep(0.001)


@dataclass
class Life:
    """One peer that hears five others in a given order: the next model comes when there is nothing left to compute.

    A peer that was killed has forgotten what came after it saved its state for the last time; that comes again.
    """

    folder: Path
    method: str = "pens"
    disk: Disk = DISK
    log: Log = field(default_factory=Log)
    node: Node | None = None

    async def live(self, at: int | None = None, before: bool = False, at_most: int = 60) -> bool:
        """Until it has finished, or is stopped in a call of its bench; True: it has finished. `at_most`: models that it
        hears."""
        self.folder.mkdir(exist_ok=True)
        stop = asyncio.Event()
        changes = {"interval": 1e6, "rounds": 5 if self.method == "pens" else 2, "step1_rounds": 1, "admit": True}
        admission = {"admission_trials": 2, "patience": 99, "n_peers": 1, "share_all": 1}
        settings_ = Settings().replace({**TINY, "schedule": "async", **changes, **admission})
        federation = rotated_federation(tiny_dataset(), settings_.scenario, 0)
        it = Cluster(settings_, self.method, federation)
        bench, folder = StoppingBench(stop, at, before), PeerFolder(self.folder, self.disk)
        self.node = it.node(0, known=6, rules=NodeRules(wait_for=5), bench=bench, folder=folder, trace=self.log)
        running = asyncio.create_task(self.node.run(stop))
        while not running.done() and self.node.peer.phase != "finished" and at_most:
            if self.node.begun and not self.node.queue.jobs and not stop.is_set():
                sender, parcel = model_of_others(self.node.counts.received)
                assert await self.node.exchange.take_model(sender, parcel) is Reception.TAKEN
                at_most -= 1
            await asyncio.sleep(0.01)
        finished = not running.done()
        stop.set()
        await running
        return finished

    def outcome(self) -> dict[str, object]:
        """What the peer is and knows, and what it tells on disk, apart from how long it took."""
        assert self.node
        learners, me = self.node.learners, self.node.peer.me
        history = pq.read_table(self.folder / "history.parquet").drop_columns(["time"])
        return {
            "peer": self.node.peer.state(),
            "losses": list(learners.history.column("val_loss")),
            "tally": learners.by_peer[me].tally.state(),
            "asked": learners.by_peer[me].num_asked(math.inf),
            "merges": learners.by_peer[me].merges,
            "held": dict(self.node.learning._uses),
            "rows": learners.models.num_alive,
            "models": {name: t.tolist() for name, t in self.node.learning.tested_model().items()},
            "received": self.node.counts.received,
            "history": history.to_pydict(),
            "pairs": (self.folder / "pairs.json").read_bytes(),
        }


@functools.cache
def model_of_others(number: int) -> tuple[str, Parcel]:
    """The model that comes after so many others."""
    generator = torch.Generator().manual_seed(number)
    row = {name: 0.1 * torch.randn(t.shape, generator=generator) for name, t in TinyNet().state_dict().items()}
    return f"peer-{1 + number % 5}", Parcel(1 + number // 5, encode(row, "fp32"), answer=True)


@functools.cache
def unbroken(method: str) -> tuple[dict[str, object], int, Log]:
    """What becomes of a peer that is never stopped, the number of steps in which it writes, and its log."""
    with TemporaryDirectory() as folder:
        life = Life(Path(folder), method, FaultyDisk())
        assert run_virtually(life.live())
        assert isinstance(life.disk, FaultyDisk)
        return life.outcome(), life.disk.steps, life.log


def stop_at_a_job_and_go_on(folder: Path, method: str, at: int, before: bool) -> bool:
    """The next life makes the same decisions; False: the peer has no job of this number."""
    what = f"stopped {'before' if before else 'after'} call {at}"
    life = Life(folder, method)
    if run_virtually(life.live(at, before)):
        return False
    life = Life(folder, method)
    assert run_virtually(life.live()), what
    assert life.outcome() == unbroken(method)[0], what
    return True


@pytest.mark.parametrize(("method", "before"), [("pens", True), ("pens", False), ("facade", False)])
def test_told_to_stop_at_any_job_and_started_again_equals_never_stopped(
    tmp_path: Path, method: str, before: bool
) -> None:
    """`pens` asks beside updates, and `facade` makes models of its own, asks about them and drops some.

    To save time, `pens` is stopped before every other job, and after the rest.
    """
    _, _, log = unbroken(method)
    actions = [action for _, _, _, some in log.entries for action in some]
    assert any(isinstance(action, Ask) and action.when == "updated" for action in actions) == (method == "pens")
    assert any(isinstance(action, Blend) for action in actions) == (method == "facade")
    for at in itertools.count(1 + before, 1 + (method == "pens")):
        if not stop_at_a_job_and_go_on(tmp_path / f"stopped-{at}", method, at, before):
            break
    assert at > (15 if method == "pens" else 6)


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("method", ["pens", "facade"])
def test_the_same_on_both_sides_of_every_job(tmp_path: Path, method: str, before: bool) -> None:
    for at in itertools.count(1):
        if not stop_at_a_job_and_go_on(tmp_path / f"stopped-{at}", method, at, before):
            break
    assert at > 6


def stop_and_go_on(folder: Path, method: str, at: int, fault: Fault) -> None:
    """Whatever happens at one step of a write, the next life makes the same decisions and leaves the same records."""
    shutil.rmtree(folder, ignore_errors=True)
    disk = FaultyDisk(at, fault)
    what = f"{fault} at step {at}"
    try:
        run_virtually(Life(folder, method, disk).live())
    except Killed:
        told = "killed"
    except DiskError as error:
        told = str(error)
    else:
        told = "nothing happened"
    assert (told == "killed") == (fault != "full"), what
    if fault == "full":
        assert re.search(r"No space left on device: make room", told), what
        assert not list(folder.glob(".*")), what
    what += f", {disk.told[at]}"
    life = Life(folder, method)
    assert run_virtually(life.live()), what
    assert life.outcome() == unbroken(method)[0], what
    assert not list(folder.glob(".*")), what


@settings(max_examples=8)
@given(st.floats(0, 1, exclude_max=True), st.sampled_from(FAULTS))
def test_whatever_happens_at_a_step_of_a_write_the_peer_goes_on_as_if_it_had_not(part: float, fault: Fault) -> None:
    with TemporaryDirectory() as folder:
        stop_and_go_on(Path(folder) / "peer", "pens", int(part * unbroken("pens")[1]), fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("method", ["pens", "facade"])
def test_the_same_at_every_step_of_every_write(tmp_path: Path, method: str, fault: Fault) -> None:
    for at in range(unbroken(method)[1]):
        stop_and_go_on(tmp_path / "peer", method, at, fault)


def test_records_that_a_power_cut_tore_are_whole_as_soon_as_the_peer_is_back(tmp_path: Path) -> None:
    """Even where it has nothing left to do, and is killed before it can exit."""
    assert run_virtually(Life(tmp_path).live())
    counted = FaultyDisk()
    run_virtually(Life(tmp_path, disk=counted).live())
    last = counted.told.index("move result.json")
    for name in ("history.parquet", "pairs.json", "result.json"):
        (tmp_path / name).write_bytes(b"")
    life = Life(tmp_path, disk=FaultyDisk(last + 1))
    with pytest.raises(Killed):
        run_virtually(life.live())
    assert life.outcome() == unbroken("pens")[0]
    assert json.loads((tmp_path / "result.json").read_text())["lives"] == 3
