# SPDX-License-Identifier: Apache-2.0
"""Law 10: examples/plugin is an installed package of parts, and needs no change to pens."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import pens
from pens.errors import NotEnoughData, SettingsError
from pens.merging.rule import Merge, Rows
from pens.network.node.parts import NodeRules
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.partition import build_federation
from pens.partitions.rotation import rotated_federation
from pens.parts import MERGE_RULES, METHODS, PARTITIONS, TOPOLOGIES, _offered
from pens.protocol.messages import ModelRef, Note, PeerId, Pulled, Request, Start, Updated, Wake
from pens.protocol.peer import Peer
from pens.settings.tree import Settings
from pens.topologies.topology import build_graph
from pens.topologies.views import Others
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.methods.specs import spec_of
from tests.network.node.test_node import own, run_until
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.partitions.labelled import check_law, dataset, labels
from tests.simulations import Log, run, simulation

PLUGIN = Path(__file__).parents[1] / "examples" / "plugin"
PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
COMMANDS = """
import sys
from pens.command_line.main import main
for words in (line.split() for line in sys.argv[1:]):
    try:
        main(words)
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which pip has installed the package. It is built from a copy, beside which nothing is left."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("plugin")
    source, target = folder / "source", folder / "site"
    shutil.copytree(PLUGIN, source, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    install = [*PIP, "--no-deps", "--no-build-isolation", "--no-index", "-q", "--target", str(target), str(source)]
    done = subprocess.run(install, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture
def _installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package in this process, for one test."""
    monkeypatch.syspath_prepend(site)
    for registry in (METHODS, PARTITIONS, TOPOLOGIES, MERGE_RULES):
        monkeypatch.setattr(registry, "_found", {})
    _offered.cache_clear()
    yield
    _offered.cache_clear()
    for name in [name for name in sys.modules if name.startswith("pens_example_parts")]:
        del sys.modules[name]


def pens_commands(commands: list[str], folder: Path, *sites: Path) -> subprocess.CompletedProcess[str]:
    """In a process that knows these packages."""
    path = os.pathsep.join([*map(str, sites), str(Path(pens.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-c", COMMANDS, *commands],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_all_four_parts_are_listed_explained_run_and_reported(site: Path, tmp_path: Path) -> None:
    commands = [
        "methods",
        "settings label-ranges",
        "settings weiszfeld_steps",
        "settings small-world",
        "run digits --methods least-heard --out run --set partition=label-ranges labels_each=4 merge=geometric-median "
        "weiszfeld_steps=3 topology=small-world shortcuts=3 peers=6 rounds=2 n_peers=2 train_per_peer=20 "
        "val_per_peer=10",
        "report run --out page.html",
    ]
    done = pens_commands(commands, tmp_path, site)
    assert done.returncode == 0, done.stdout + done.stderr
    for words in (
        "│ least-heard │",
        "How many labels each peer holds",
        "How many steps of Weiszfeld",
        "How many random pairs",
    ):
        assert words in done.stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in (
        "gossip with the peers that were not heard",
        "#00707a",
        "ranges of 4 labels",
        "geometric-median",
        "small-world",
    ):
        assert words in page


@pytest.mark.usefixtures("_installed")
def test_each_part_is_found_by_its_name() -> None:
    registries = METHODS, PARTITIONS, TOPOLOGIES, MERGE_RULES
    names = "least-heard", "label-ranges", "small-world", "geometric-median"
    for registry, name in zip(registries, names, strict=True):
        assert name in registry.names()
        assert registry.find(name).name == name


def test_a_run_is_shown_and_reported_without_the_package_and_not_resumed(site: Path, tmp_path: Path) -> None:
    values = "partition=label-ranges labels_each=4 merge=geometric-median topology=small-world shortcuts=3 peers=6"
    small = "rounds=2 n_peers=2 train_per_peer=20 val_per_peer=10"
    begin = [f"run digits --methods least-heard,random --out run --set {values} {small}"]
    assert pens_commands(begin, tmp_path, site).returncode == 0
    done = pens_commands(["show run", "report run --out page.html"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "label-ranges" in done.stdout
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("least-heard", "small-world", "geometric-median", "label-ranges.labels_each"):
        assert words in page, words
    refused = pens_commands(["run --resume run"], tmp_path)
    assert refused.returncode
    said = " ".join((refused.stdout + refused.stderr).split())
    for what in (
        "method 'least-heard'",
        "partition 'label-ranges'",
        "topology 'small-world'",
        "rule 'geometric-median'",
    ):
        assert what in said, said


# --- least-heard ------------------------------------------------------------------------------------------------------


def heard(owners: tuple[PeerId, ...]) -> Pulled:
    notes: tuple[Note, ...] = (None,) * len(owners)
    return Pulled(tuple(ModelRef(owner, 1) for owner in owners), notes)


@pytest.mark.usefixtures("_installed")
def test_three_rounds_of_two_reach_all_six_others() -> None:
    """And the fourth round asks those of the first one again."""
    settings = Settings().replace({**TINY, "peers": 7})
    it = Peer(PeerId(0), 1, spec_of("least-heard", settings).plan(9, 5, num_peers=7), Others(range(7), PeerId(0)))
    it.handle(Start())
    it.handle(Updated())
    asked = []
    for _ in range(4):
        (request,) = it.handle(Wake())
        assert isinstance(request, Request)
        asked.append(request.sources)
        again = Peer(PeerId(0), 1, it.plan, it.reachable)
        it.handle(heard(request.sources))
        again.restore(it.state())
        assert again.state() == it.state()
        it.handle(Updated())
    assert sorted(peer for sources in asked[:3] for peer in sources) == [1, 2, 3, 4, 5, 6]
    assert asked[3] == asked[0]


@pytest.mark.usefixtures("_installed")
def test_too_few_others_are_refused() -> None:
    with pytest.raises(SettingsError, match="n_peers = 6, but each peer can hear at most 5 others"):
        pens.run({**TINY, "n_peers": 6}, methods="least-heard", model=TinyNet, data=tiny_dataset())


@pytest.mark.usefixtures("_installed")
def test_real_peers_follow_it() -> None:
    settings = Settings().replace({**TINY, "schedule": "async", "merge": "geometric-median"})
    federation = rotated_federation(tiny_dataset(), settings.scenario, 3)
    simulated, real = Log(), Log()
    simulator = run(simulation(settings, "least-heard", seed=3, federation=federation, log=simulated))
    cluster = Cluster(settings, "least-heard", federation, 3, MemoryNetwork(settings.timing.latency, posts=True))
    nodes = [cluster.node(p, known=6, trace=real, rules=NodeRules(wait_for=5)) for p in range(6)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    for p in range(6):
        assert own(simulated, p, simulator.now) == own(real, p, simulator.now)
        assert simulator.learners.by_peer[PeerId(p)].merges


# --- label-ranges -----------------------------------------------------------------------------------------------------


def sharing(**values: object) -> Settings:
    small = {"partition": "label-ranges", "peers": 4, "train_per_peer": 9, "val_per_peer": 3, "labels_each": 2}
    return Settings().replace({**small, **values})


@pytest.mark.usefixtures("_installed")
def test_four_peers_share_four_labels_in_ranges_of_two() -> None:
    """Peer k holds labels k and k + 1, the last one 3 and 0: six samples of each."""
    of = dataset([12, 12, 12, 12], [8, 8, 8, 8])
    federation = build_federation(of, sharing(), seed=1)
    check_law(federation, of, 9, 3)
    held = [labels(peer.train, 4) + labels(peer.val, 4) for peer in federation.peers]
    assert np.array_equal(held, [[6, 6, 0, 0], [0, 6, 6, 0], [0, 0, 6, 6], [6, 0, 0, 6]])


@pytest.mark.usefixtures("_installed")
def test_what_the_labels_do_not_allow_is_refused() -> None:
    of = dataset([12, 11, 12, 13], [8, 8, 8, 8])
    with pytest.raises(NotEnoughData, match="up to 12 samples of label 1, but numbered has 11"):
        build_federation(of, sharing(), seed=1)
    with pytest.raises(SettingsError, match="labels_each = 5, but numbered has 4 labels"):
        build_federation(of, sharing(labels_each=5), seed=1)


# --- small-world ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_installed")
def test_a_ring_with_two_shortcuts() -> None:
    """Six edges of the ring and two others, which depend on the seed."""
    settings = Settings().replace({"topology": "small-world", "shortcuts": 2})
    graphs = [build_graph(settings, 6, seed) for seed in range(4)]
    for graph in graphs:
        assert all({(p + 1) % 6, (p - 1) % 6} <= set(graph[p]) for p in range(6))
        assert sum(map(len, graph)) == 2 * 8
    assert len({tuple(map(tuple, graph)) for graph in graphs}) > 1
    with pytest.raises(SettingsError, match="shortcuts = 10, but a ring of 6 peers leaves 9 pairs"):
        build_graph(settings.replace({"shortcuts": 10}), 6, 0)


# --- geometric-median -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_installed")
def test_the_geometric_median_is_where_distances_have_the_smallest_sum() -> None:
    """Of three numbers it is the middle one: 0, 1, 100 → 1. Of a square's corners it is the centre. One step from the
    mean 3 of 0, 1, 8 has weights in proportion to 1/3, 1/2 and 1/5: (1/2 + 8/5) / (31/30) = 63/31."""
    rule = MERGE_RULES.find("geometric-median")

    def merged(models: list[list[float]], steps: int) -> list[float]:
        numbers = torch.tensor([models])
        about = [Merge(0, tuple(range(len(models))), own_in_merge=True)]
        found: list[float] = rule.merge(Rows(numbers[:, 0], numbers, about), rule.section(weiszfeld_steps=steps))[0]
        return [float(number) for number in found]

    assert merged([[0.0], [1.0], [100.0]], 60) == pytest.approx([1.0], abs=1e-3)
    assert merged([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]], 3) == pytest.approx([1.0, 1.0])
    assert merged([[0.0], [1.0], [8.0]], 1) == pytest.approx([63 / 31])
