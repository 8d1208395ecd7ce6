# SPDX-License-Identifier: Apache-2.0
"""Real peers for tests of faults: `pens peer` processes on loopback, what they tell of themselves, and what they leave.

A `Site` is a folder with a federation's certificates and one file of settings for each peer. A `RealPeer` is one of
them: started, killed, stopped, asked how it is. Everything is small: few samples, one thread, short waits.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from torch import Tensor

from pens.network.certificates.authority import Authority
from pens.network.certificates.credentials import Credentials, load_credentials
from pens.network.federation.loopback import free_ports
from pens.network.node.state import PeerFolder
from pens.network.transport.interface import Address

HOST = "127.0.0.1"
PATIENCE_S = 180.0
CONFIG = """
preset = "digits"
[peer]
name = "peer-{me}"
listen = "{host}:{port}"
bootstrap = [{bootstrap}]
certificates = "certs/peers/peer-{me}"
state = "state-{me}"
metrics_port = {metrics_port}
wait_for = {wait_for}
threads = 1
gossip_s = 0.2
suspect_s = {suspect_s}
drop_s = {drop_s}
[data]
share = {me}
[scenario]
peers = {shares}
train_per_peer = 40
val_per_peer = 20
[gossip]
rounds = {rounds}
n_peers = 1
[training]
epochs = 1
[stopping]
patience = 1000000
[pens]
n_sampled = 2
m = 1
step1_rounds = 2
step1_samplings = 2
step1_epochs = 1
[timing]
interval = 0.2
[engine]
compile = "never"
"""


def wait_until(condition: Callable[[], bool], what: str, limit_s: float = PATIENCE_S) -> None:
    """Look again and again, until it is so."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            pytest.fail(f"waited {limit_s:g} s in vain for: {what}")
        time.sleep(0.05)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process, from /proc."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass
class RealPeer:
    """One `pens peer`."""

    folder: Path
    me: int
    address: Address
    metrics_port: int
    before: tuple[str, ...] = ()
    """Words before the command: another namespace, a limit."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        return f"peer-{self.me}"

    @property
    def state(self) -> Path:
        return self.folder / f"state-{self.me}"

    @property
    def config(self) -> Path:
        return self.folder / f"{self.me}.toml"

    # --- its life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        command = [*self.before, sys.executable, "-m", "pens", "peer", str(self.config)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(command, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def kill(self) -> None:
        """kill -9."""
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=PATIENCE_S)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    # --- what it tells ------------------------------------------------------------------------------------------------

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def log_bytes(self) -> int:
        return self._log.stat().st_size

    @property
    def _log(self) -> Path:
        return self.folder / f"{self.me}.log"

    def health(self) -> dict[str, Any]:
        """Of /healthz; nothing while it does not answer."""
        try:
            found: dict[str, Any] = json.loads(self._get("/healthz"))
        except OSError:
            return {}
        return found

    def _get(self, page: str) -> bytes:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.metrics_port}{page}", timeout=10) as answer:
                return bytes(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.read()

    @property
    def step(self) -> int:
        return int(self.health().get("step", -1))

    @property
    def phase(self) -> str:
        return str(self.health().get("phase", ""))

    def alive(self) -> int:
        """Others that it takes to be there."""
        return int(self.health().get("members", {}).get("alive", 0))

    def refusals(self) -> dict[str, int]:
        """By reason, from /metrics."""
        lines = self._get("/metrics").decode().splitlines()
        found = [line for line in lines if line.startswith("pens_refusals_total{")]
        return {line.split('"')[1]: int(float(line.rsplit(" ", 1)[1])) for line in found}

    def memory_bytes(self) -> int:
        """Resident, from /proc."""
        assert self.process
        return memory_bytes(self.process.pid)

    # --- what it leaves -----------------------------------------------------------------------------------------------

    def checkpoint(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The state on disk, read from a copy: a running peer may replace the file while it is read."""
        with TemporaryDirectory() as folder:
            name = "checkpoint.safetensors"
            (Path(folder) / name).write_bytes((self.state / name).read_bytes())
            found = PeerFolder(Path(folder)).load()
        assert found
        return found

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.state / "result.json").read_text())
        return found


class Site:
    """A federation on one machine."""

    def __init__(self, folder: Path, count: int, others: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """`others`: names with certificates but without a peer. `hosts`: where each peer listens."""
        self.folder = folder
        self.authority = Authority(folder / "certs")
        self.authority.create("test", 1)
        ports = free_ports(2 * count)
        for name in (*(f"peer-{me}" for me in range(count)), *others):
            self.authority.issue(name)
        addresses = [Address(hosts[me] if hosts else HOST, ports[me]) for me in range(count)]
        self.peers = [RealPeer(folder, me, addresses[me], ports[count + me]) for me in range(count)]

    def configure(self, settings: Mapping[str, Any] | None = None) -> None:
        """Write the peers' files. The first two are bootstrap addresses, so that either may be away."""
        count = len(self.peers)
        defaults = {
            "rounds": 100_000,
            "suspect_s": 2.0,
            "drop_s": 6.0,
            "wait_for": count - 1,
            "shares": 2 * (count // 2 + 1),
        }
        known = ", ".join(f'"{peer.address}"' for peer in self.peers[:2])
        for peer in self.peers:
            values = {"me": peer.me, "host": peer.address.host, "port": peer.address.port, "bootstrap": known}
            more = {"metrics_port": peer.metrics_port, **defaults, **(settings or {})}
            peer.config.write_text(CONFIG.format(**values, **more))

    def credentials(self, name: str) -> Credentials:
        return load_credentials(self.folder / "certs" / "peers" / name)

    def all_advance(self, by: int = 2, but: Sequence[int] = (), limit_s: float = PATIENCE_S) -> None:
        """Wait until everybody has done some more updates."""
        some = [peer for peer in self.peers if peer.me not in but]
        steps = {peer.me: peer.step for peer in some}
        wait_until(
            lambda: all(peer.step >= steps[peer.me] + by for peer in some),
            f"{by} more updates of everybody but {list(but)} after {steps}",
            limit_s,
        )

    def all_gossip(self) -> None:
        """Wait until everybody has found neighbours."""
        wait_until(lambda: all(p.phase == "gossiping" for p in self.peers), "everybody in step 2")


@contextmanager
def running(site: Site) -> Iterator[Site]:
    """All peers run while the block lasts; those that still run after it must exit cleanly."""
    try:
        for peer in site.peers:
            peer.start()
        yield site
        codes = {peer.name: peer.stop() for peer in site.peers if peer.runs}
        assert not any(codes.values()), f"exit codes after SIGTERM: {codes}"
        for peer in site.peers:
            assert "Traceback" not in peer.log, peer.log[-4000:]
    finally:
        for peer in site.peers:
            peer.kill()
