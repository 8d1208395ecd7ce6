# SPDX-License-Identifier: Apache-2.0
"""A network that is cut in two, by namespaces and a cable between them: both halves train on, and it heals."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.faults.harness import RealPeer, Site, running, wait_until

ADDRESSES = ("10.77.0.1", "10.77.0.2")
_READ = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"


def can_cut() -> bool:
    tools = all(shutil.which(tool) for tool in ("unshare", "nsenter", "ip", "sleep"))
    words = ["unshare", "-rn", "ip", "link", "add", "left", "type", "veth", "peer", "name", "right"]
    return tools and not subprocess.run(words, capture_output=True).returncode


class TwoNetworks:
    """Two namespaces and a cable."""

    def __init__(self) -> None:
        self._keepers = [
            subprocess.Popen(["unshare", "-rn", "sleep", "600"]),
        ]
        self._wait_for(self._keepers[0])
        self._keepers.append(subprocess.Popen([*self._inside(0), "unshare", "-n", "sleep", "600"]))
        self._wait_for(self._keepers[1])
        self._do(0, f"link add cable type veth peer name cable netns {self._keepers[1].pid}")
        for side, address in enumerate(ADDRESSES):
            self._do(side, "link set lo up")
            self._do(side, f"addr add {address}/24 dev cable")
            self._do(side, "link set cable up")

    def _wait_for(self, keeper: subprocess.Popen[bytes]) -> None:
        """Until it has its own namespace, which it has when it has become `sleep`."""
        name = Path(f"/proc/{keeper.pid}/comm")
        wait_until(lambda: name.read_text().strip() == "sleep", "a namespace")

    def _inside(self, side: int) -> list[str]:
        return ["nsenter", "-t", str(self._keepers[side].pid), "-U", "--preserve-credentials", "-n"]

    def inside(self, side: int) -> tuple[str, ...]:
        """Words before a command that is to run on one side."""
        return tuple(self._inside(side))

    def _do(self, side: int, words: str) -> None:
        subprocess.run([*self._inside(side), "ip", *words.split()], check=True, capture_output=True)

    def cut(self) -> None:
        """Packets vanish, and nobody is told."""
        self._do(0, "addr flush dev cable")
        self._do(0, f"addr add {ADDRESSES[0]}/32 dev lo")
        self._do(0, f"route add blackhole {ADDRESSES[1]}")

    def heal(self) -> None:
        self._do(0, f"route del blackhole {ADDRESSES[1]}")
        self._do(0, f"addr del {ADDRESSES[0]}/32 dev lo")
        self._do(0, f"addr add {ADDRESSES[0]}/24 dev cable")

    def close(self) -> None:
        for keeper in reversed(self._keepers):
            keeper.kill()
            keeper.wait()


@pytest.fixture
def networks() -> Iterator[TwoNetworks]:
    found = TwoNetworks()
    yield found
    found.close()


class FarPeer(RealPeer):
    """One that only its own network can reach."""

    def _get(self, page: str) -> bytes:
        url = f"http://127.0.0.1:{self.metrics_port}{page}"
        found = subprocess.run([*self.before, "python3", "-c", _READ, url], capture_output=True)
        if found.returncode:
            raise OSError(found.stderr)
        return found.stdout


def known(peer: RealPeer) -> dict[str, int]:
    members: dict[str, int] = peer.health().get("members", {})
    return members


@pytest.mark.slow
@pytest.mark.skipif(not can_cut(), reason="this machine lets no user make network namespaces")
def test_both_halves_train_on_and_find_each_other_again(tmp_path: Path, networks: TwoNetworks) -> None:
    sides = (0, 0, 1, 1)
    site = Site(tmp_path, 4, hosts=[ADDRESSES[side] for side in sides])
    site.peers = [
        FarPeer(p.folder, p.me, p.address, p.metrics_port, networks.inside(side))
        for p, side in zip(site.peers, sides, strict=True)
    ]
    site.configure({"suspect_s": 2.0, "drop_s": 4.0})
    with running(site):
        site.all_gossip()
        wait_until(lambda: all(p.alive() == 3 for p in site.peers), "everybody there")
        networks.cut()
        wait_until(lambda: all(known(p) == {"alive": 1, "dropped": 2} for p in site.peers), "two halves")
        site.all_advance(2)
        networks.heal()
        wait_until(lambda: all(p.alive() == 3 for p in site.peers), "everybody there again")
        site.all_advance(2)
    for peer in site.peers:
        assert json.loads((peer.state / "result.json").read_text())["lives"] == 1
