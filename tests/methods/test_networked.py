# SPDX-License-Identifier: Apache-2.0
"""Laws 5 and 10 together: real peers follow a method from a file as the simulator does."""

from __future__ import annotations

from pathlib import Path

import pytest

from pens.errors import SettingsError
from pens.methods.names import parse_methods
from pens.network.federation.loopback import FederationRequest, make_federation, read_federation
from pens.network.members.reachable import Reachable
from pens.network.node.parts import NodeRules
from pens.network.operating.peer_config import read_peer_config
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.rotation import rotated_federation
from pens.parts import METHODS
from pens.protocol.messages import PeerId
from pens.settings.tree import Settings
from tests.conftest import TINY, tiny_dataset
from tests.methods.test_own import OWN
from tests.network.node.test_node import own, run_until
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import Log, run, simulation


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a method, which nobody has asked for yet, and which is forgotten afterwards."""
    for name in ("_found", "_references", "_given"):
        monkeypatch.setattr(METHODS, name, {})
    path = tmp_path / "mine.py"
    path.write_text(OWN)
    return path


def test_nodes_talk_to_whom_the_simulated_peers_do(file: Path) -> None:
    """`next`: a ring, although all six know each other."""
    parse_methods(f"{file}:Next")
    settings = Settings().replace({**TINY, "schedule": "async", "rounds": 4})
    federation = rotated_federation(tiny_dataset(), settings.scenario, 3)
    simulated, real = Log(), Log()
    simulator = run(simulation(settings, "next", seed=3, federation=federation, log=simulated))
    cluster = Cluster(settings, "next", federation, 3, MemoryNetwork(settings.timing.latency, posts=True))
    nodes = [cluster.node(p, known=6, trace=real, rules=NodeRules(wait_for=5)) for p in range(6)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    for p in range(6):
        assert own(simulated, p, simulator.now) == own(real, p, simulator.now)
        assert list(nodes[p].peer.neighbours) == [(p + 1) % 6]
        assert set(simulator.learners.by_peer[PeerId(p)].merges) == {(p - 1) % 6}  # models are pushed


def test_a_view_is_narrowed_whoever_comes_and_goes() -> None:
    view = Reachable(lambda others: others[:1])
    view.become([PeerId(7), PeerId(3)])
    assert (list(view), PeerId(3) in view, PeerId(7) in view) == ([3], True, False)
    view.become([])
    assert not list(view)


def test_a_federation_on_this_machine_follows_a_method_from_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = file.parent / "up"
    wish = FederationRequest("digits", {}, peers=2, method=f"{file}:Next", seed=0, interval=0.5)
    federation, _ = make_federation(folder, wish)
    for name in ("_found", "_references", "_given"):
        monkeypatch.setattr(METHODS, name, {})
    assert read_federation(folder) == federation
    config = federation.members[0].config
    assert f'method = "{file}:Next"' in config.read_text()
    (folder / "mine.py").write_text(OWN)
    config.write_text(config.read_text().replace(f"{file}:Next", "../mine.py:Next"))
    monkeypatch.setattr(METHODS, "_references", {})
    monkeypatch.setattr(METHODS, "_found", {})
    assert read_peer_config(config).peer.method == "next"  # beside the file that names it
    config.write_text(config.read_text().replace("../mine.py:Next", "local"))
    with pytest.raises(SettingsError, match="method local: real peers cannot follow it, choose from pens, pens"):
        read_peer_config(config)
