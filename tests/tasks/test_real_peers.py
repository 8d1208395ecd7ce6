# SPDX-License-Identifier: Apache-2.0
"""Real peers with another task than classification: nodes in memory, the peer's file, its monitor and its records."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from pens.data.scenarios import PeerData
from pens.engine.batches import SampleStack
from pens.engine.functional import StackedNetwork
from pens.engine.training import Engine, StackEngine
from pens.errors import DataError, ModelError, SettingsError
from pens.network.federation.records import compose
from pens.network.node.parts import NodeRules
from pens.network.node.state import PeerFolder
from pens.network.operating.assembly import load_holding
from pens.network.operating.monitor import Vitals, _health, _Metrics
from pens.network.operating.peer_config import read_peer_config
from pens.network.transport.memory import MemoryNetwork
from pens.settings.tree import Settings
from pens.storage.runlog import ExperimentDir
from pens.tasks.metric import Measure
from pens.tasks.task import outputs_of, task_of
from tests.network.node.test_node import own, run_until
from tests.network.nodes import Cluster
from tests.network.operating.test_assembly import node_of
from tests.network.virtual import run_virtually
from tests.simulations import CPU, Log, final_models, run, simulation
from tests.tasks.test_runs import VALUES, Line, energy

SETTINGS = Settings().replace({**VALUES, "schedule": "async", "rounds": 4, "patience": 2, "stop_on": "metric"})
RMSE = Measure("RMSE", "kWh", higher_is_better=False)


def engine() -> Engine:
    data, task = energy(), task_of(SETTINGS)
    example = SampleStack([data.peers[0].train], CPU).x[0, :3]
    return StackEngine(StackedNetwork(Line, example, outputs_of(task, 1, ())), 1 << 28, task=task)


def test_nodes_decide_as_the_simulator_does_and_tell_errors(tmp_path: Path) -> None:
    """Law 5, with early stopping on errors; then the peers' folders become a run."""
    data, one = energy(), engine()
    simulated, real = Log(), Log()
    simulator = run(simulation(SETTINGS, "pens", seed=3, federation=data, log=simulated, engine=one))
    network = MemoryNetwork(SETTINGS.timing.latency, posts=True)
    cluster = Cluster(SETTINGS, "pens", data, 3, network, engines=dict.fromkeys(range(6), one))
    folders = [PeerFolder(tmp_path / f"peer-{p}") for p in range(6)]
    for p, folder in enumerate(folders):
        card = {"name": f"peer-{p}", "method": "pens", "seed": 3, "settings": SETTINGS.model_dump(mode="json")}
        folder.create(card)
    rules = NodeRules(wait_for=5)
    nodes = [cluster.node(p, known=6, trace=real, rules=rules, folder=folders[p]) for p in range(6)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    assert simulated.entries
    for p in range(6):
        assert own(simulated, p, simulator.now) == own(real, p, simulator.now)
    told = json.loads((tmp_path / "peer-0" / "result.json").read_text(encoding="utf-8"))
    assert told["metric"] == {"name": "RMSE", "unit": "kWh", "higher_is_better": False}
    assert "accuracy" not in told
    result = compose([tmp_path / f"peer-{p}" for p in range(6)], tmp_path / "run")
    assert result.metric == RMSE
    expected = one.evaluate(simulator.learners.models, simulator.learners.tested_rows(),
                            SampleStack(data.tests, CPU), data.tested_on, further=True)  # fmt: skip
    assert len(final_models(simulator)) == 6
    np.testing.assert_allclose(result.score, expected.score, rtol=1e-4)
    assert {measure.name for measure in result.further} == set(expected.further) == {"MAE", "R²"}
    for measure, values in result.further.items():
        np.testing.assert_allclose(values, expected.further[measure.name], rtol=1e-4)
    assert ExperimentDir(tmp_path / "run").results()[0].metric == RMSE


FILE = """
[peer]
name = "hospital-a"
model = "mine.py:{net}"
device = "cpu"
[data]
source = "mine.py:{function}"
[model]
task = "{task}"
[engine]
compile = "never"
"""
OWN = """
def real():
    x = np.random.default_rng(0).normal(size=(20, 1, 4, 4))
    return Samples(x, x.mean((1, 2, 3))), Samples(x[:5], x[:5].mean((1, 2, 3)))
class One(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.out = torch.nn.Linear(16, 1)
    def forward(self, x):
        return self.out(x.flatten(1))
"""


def file_of(task: str = "regression", function: str = "real", net: str = "One") -> str:
    return FILE.format(task=task, function=function, net=net)


def test_a_peer_with_own_data_learns_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.network.operating import test_assembly

    monkeypatch.setattr(test_assembly, "DATA", test_assembly.DATA + OWN)
    node = node_of(tmp_path, file_of())
    assert node.parts.learning.measure == Measure("RMSE", "", higher_is_better=False)
    with pytest.raises(SettingsError, match=r"num_classes = 3, but the task regression has no classes: leave it out"):
        node_of(tmp_path, file_of().replace('real"', 'real"\nnum_classes = 3'))
    with pytest.raises(DataError, match="the peer hospital-a's training targets do not suit the task classification"):
        node_of(tmp_path, file_of("classification"))
    with pytest.raises(ModelError, match=r"returns shape \(3, 3\) .* expected \[batch, 1\]"):
        node_of(tmp_path, file_of(net="Net"))
    (tmp_path / "peer.toml").write_text(file_of(), encoding="utf-8")
    holding = load_holding(read_peer_config(tmp_path / "peer.toml"))
    assert holding.num_classes == 1
    assert isinstance(holding.data, PeerData)


def test_the_monitor_names_the_metric_and_its_direction() -> None:
    vitals = Vitals("a", "1", "gossiping", 3, val_accuracy=0.75, kept_val_accuracy=0.5, metric=RMSE)
    told = _health(vitals)
    assert told["metric"] == {"name": "RMSE", "unit": "kWh", "higher_is_better": False}
    assert (told["val_score"], told["kept_val_score"]) == (0.75, 0.5)
    registry = CollectorRegistry()
    registry.register(_Metrics(lambda: vitals))
    text = generate_latest(registry).decode()
    assert "pens_validation_score 0.75" in text
    assert "# HELP pens_validation_score RMSE after the last update, in kWh, lower is better." in text
    assert 'pens_metric{better="lower",metric="RMSE",unit="kWh"} 1.0' in text
    assert "accuracy" not in text
