# SPDX-License-Identifier: Apache-2.0
"""Whole runs of partitions without clusters: nothing is said that nobody knows, in any place that tells of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import pens
from pens.command_line.main import main
from pens.engine.batches import SampleStack
from pens.errors import SettingsError
from pens.experiment.presets import PRESETS
from pens.measuring.metrics import UNKNOWN_CLUSTER, neighbour_agreement
from pens.network.federation.loopback import FederationRequest, fit_settings, make_federation, usual_waits
from pens.network.operating.assembly import load_holding
from pens.network.operating.peer_config import read_peer_config
from pens.partitions.partition import build_federation
from pens.parts import PARTITIONS
from pens.report.merge_maps import merge_map, merged_within
from pens.report.selection_curves import selection_curve
from pens.report.study import read_studies
from pens.settings.tree import Settings
from pens.storage.runlog import ExperimentDir
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.experiment.test_experiment import StopAfter, same_result
from tests.partitions.test_partition import own_file

SKEWED = {**TINY, "partition": "dirichlet", "alpha": 0.5}
QUICK = ["rounds=2", "step1_rounds=2", "step1_samplings=1", "step1_epochs=1", "epochs=1", "peers=5", "n_peers=2",
         "n_sampled=3", "m=1", "compile=never"]  # fmt: skip


@pytest.fixture(autouse=True)
def _forget_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PARTITIONS, "_references", {})
    monkeypatch.setattr(PARTITIONS, "_found", {})


def pens_here(*arguments: str | Path, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    assert (ended.value.code or 0) == code


def skewed_run(**arguments: object) -> pens.ExperimentResult:
    defaults: dict[str, object] = {"model": TinyNet, "data": tiny_dataset(), "device": "cpu"}
    return pens.run(SKEWED, **{**defaults, **arguments})  # type: ignore[arg-type]


def test_each_peer_is_tested_on_its_own_test_set(tmp_path: Path) -> None:
    result = skewed_run(methods="pens,central", out=tmp_path / "run")
    federation = build_federation(tiny_dataset(), Settings().replace(SKEWED), 0)
    for run in result.runs:
        assert (run.clusters, run.cluster_names, run.agreement) == (None, (), None)
        for peer, test in enumerate(federation.tests):
            net = TinyNet()
            net.load_state_dict(run.state_dict(peer if run.method == "pens" else 0))
            data = SampleStack([test], torch.device("cpu"))
            right = net(data.x[0]).argmax(1) == data.y[0]
            assert run.accuracy[peer] == pytest.approx(right.double().mean().item())
    written = json.loads((tmp_path / "run" / "pens-seed0" / "result.json").read_text())
    assert (written["clusters"], written["cluster_names"]) == (None, [])
    for stored, run in zip(ExperimentDir(tmp_path / "run").results(), result.runs, strict=True):
        same_result(stored, run)


def test_a_stopped_run_goes_on_to_the_same_result(tmp_path: Path) -> None:
    whole = skewed_run(methods="pens").runs[0]
    with pytest.raises(pens.PensError):
        skewed_run(methods="pens", out=tmp_path / "run", observer=StopAfter(4))
    resumed = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset(), device="cpu")
    same_result(resumed.runs[0], whole)


def test_methods_are_those_that_need_no_clusters() -> None:
    assert {run.method for run in skewed_run().runs} == {"local", "random", "pens"}
    with pytest.raises(SettingsError, match=r"oracle is told the true clusters, but the partition .* has no clusters"):
        skewed_run(methods="oracle")
    federation = build_federation(tiny_dataset(), Settings().replace(SKEWED), 0)
    with pytest.raises(SettingsError, match="oracle is told the true clusters"):
        pens.run(TINY, methods="oracle", model=TinyNet, data=federation)


def test_the_report_invents_no_clusters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    pens_here("run", "digits", "--set", "partition=dirichlet", "alpha=0.25", *QUICK, "--out", out, "--device", "cpu")
    printed = capsys.readouterr().out
    assert "without oracle: partition dirichlet has no clusters" in printed
    assert "digits, label shares from Dirichlet(0.25): 5 peers, 1 seed" in printed
    assert "precision" not in printed
    (study,) = read_studies([out])
    run = study.of("pens")[0]
    assert not study.clusters_known
    assert (merged_within(run), selection_curve(study, run), neighbour_agreement({}, run.clusters)) == (
        None,
        None,
        None,
    )
    found = merge_map(run)
    assert found
    assert (found.within, set(found.sections)) == (None, {""})
    pens_here("report", out, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    for words in (
        "digits, label shares from Dirichlet(0.25): 5 peers",
        "The clusters of these peers are not known",
        "The paper has no number for these settings (partition = dirichlet (paper: rotation))",
        " alpha=0.25",
    ):
        assert words in page
    for claim in ("own cluster", "0°", "with precision"):
        assert claim not in page
    pens_here("show", out)
    assert "label shares from Dirichlet(0.25): 5 peers, 1 seed" in capsys.readouterr().out


def test_an_own_partition_is_run_resumed_shown_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = own_file(tmp_path), tmp_path / "run"
    (tmp_path / "mine.toml").write_text(
        'preset = "digits"\n[scenario]\npartition = "stride.py:Stride"\n[stride]\nstep = 3\n'
    )
    pens_here("run", tmp_path / "mine.toml", "--methods", "local", "--set", *QUICK, "--out", out)
    printed = capsys.readouterr().out
    assert "digits, stride 3: 5 peers, 1 seed" in printed
    accuracy = ExperimentDir(out).results()[0].accuracy.tolist()
    monkeypatch.chdir(tmp_path)
    again = tmp_path / "again"
    pens_here(
        "run", "digits", "--methods", "local", "--set", "step=3", "partition=stride.py:Stride", *QUICK, "--out", again
    )
    assert ExperimentDir(again).results()[0].accuracy.tolist() == accuracy
    (again / "local-seed0" / "result.json").unlink()
    monkeypatch.chdir("/")
    pens_here("run", "--resume", again)
    assert ExperimentDir(again).results()[0].accuracy.tolist() == accuracy
    pens_here("show", again)
    pens_here("report", again, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "digits, stride 3: 5 peers" in page
    assert f"partition={path}:Stride" in page
    assert " step=3" in page


@pytest.mark.parametrize("older", [{"clusters": [2, 0, 1, 3, 5, 4]}, {"cluster_names": ["a", UNKNOWN_CLUSTER]}])
def test_older_runs_say_otherwise_that_clusters_are_not_known(tmp_path: Path, older: dict[str, object]) -> None:
    pens.run(TINY, methods="pens", model=TinyNet, data=tiny_dataset(), out=tmp_path / "run")
    path = tmp_path / "run" / "pens-seed0" / "result.json"
    names = {"cluster_names": list("uvwxyz")} if "clusters" in older else {}
    path.write_text(json.dumps(json.loads(path.read_text()) | older | names))
    (study,) = read_studies([tmp_path / "run"])
    (run,) = study.runs
    assert (run.clusters, run.cluster_names, run.agreement) == (None, (), None)
    assert run.peer_label(0) == ("w" if names else "peer 0")


# --- real peers -------------------------------------------------------------------------------------------------------


def test_real_peers_have_their_share_and_no_cluster(tmp_path: Path) -> None:
    wish = FederationRequest("digits", {"partition": "dirichlet", "alpha": 0.5}, peers=5, method="pens", seed=2)
    federation, _ = make_federation(tmp_path / "up", wish)
    whole = build_federation(load_digits(), federation.settings, 2)
    for share, member in enumerate(federation.members):
        config = read_peer_config(member.config)
        assert config.settings == federation.settings
        holding = load_holding(config)
        assert holding.cluster is None
        np.testing.assert_array_equal(holding.data.train.x, whole.peers[share].train.x)
        assert holding.test is not None
        np.testing.assert_array_equal(holding.test.x, whole.tests[share].x)


def test_an_own_partition_travels_in_the_peers_files(tmp_path: Path) -> None:
    changes = {"partition": f"{own_file(tmp_path)}:Stride", "step": 5}
    federation, _ = make_federation(
        tmp_path / "up", FederationRequest("digits", changes, peers=4, method="random", seed=0)
    )
    config = read_peer_config(federation.members[3].config)
    assert config.settings == federation.settings
    holding = load_holding(config)
    assert holding.test is not None
    assert len(holding.test) == -(-len(load_digits().test) // 5)


def test_without_clusters_settings_are_lowered_to_the_number_of_all_peers() -> None:
    """Nine others; in clusters of five it would be four."""
    settings, lowered = fit_settings(PRESETS["digits"].settings, {"partition": "shards"}, 10, "pens")
    assert settings.gossip.n_peers == 9
    assert "n_peers" not in lowered
    assert usual_waits(settings, "pens") > 0
    apart, _ = fit_settings(PRESETS["digits"].settings, {"partition": "groups", "sizes": [7, 3]}, 10, "pens")
    assert apart.gossip.n_peers == 2


def load_digits() -> pens.Dataset:
    from pens.data.sources import load_dataset

    return load_dataset("digits", None)
