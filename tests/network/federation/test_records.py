# SPDX-License-Identifier: Apache-2.0
"""Peers' folders, composed: a simulation that is taken apart and put together again shows the same."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import pens
from pens.command_line.main import main
from pens.data.preparation import Preparation, Standard
from pens.errors import RunDirError
from pens.inference.network_form import NetworkForm
from pens.measuring.results import RunResult, summarise
from pens.measuring.trust import Dropped, TrustRecord
from pens.network.federation.foreign_files import read_table
from pens.network.federation.records import COUNTS, compose
from pens.report.study import read_studies
from pens.settings.tree import Settings
from pens.storage.files import replace_file
from pens.storage.runlog import ExperimentDir
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.inference.test_using import digits

SETTINGS = Settings().replace({**TINY, "schedule": "async"})


@pytest.fixture(scope="module")
def simulated() -> RunResult:
    found = pens.run(SETTINGS, methods="pens", model=TinyNet, data=tiny_dataset(), device="cpu")
    return found.runs[0]


def take_apart(run: RunResult, folder: Path, name: Callable[[int], str] = "peer-{:02d}".format) -> list[Path]:
    """A run's peers, each in a folder as it would have left it itself."""
    folders = [folder / name(peer) for peer in range(run.num_peers)]
    for peer, home in enumerate(folders):
        home.mkdir(parents=True)
        write_peer(run, peer, home, name)
    return folders


def write_peer(run: RunResult, peer: int, home: Path, name: Callable[[int], str]) -> None:
    sizes, counts, comparisons = run.data_sizes, run.communication, run.comparisons
    assert sizes is not None
    assert comparisons is not None
    card = {
        "name": name(peer),
        "peer_id": 1000 + peer,
        "settings": SETTINGS.model_dump(mode="json"),
        "seed": run.seed,
        "cluster": run.cluster_label(peer),
        "data_sizes": {"train": int(sizes.train[peer]), "val": int(sizes.val[peer])},
        "started": 1e9,
    }
    result = {
        "accuracy": float(run.accuracy[peer]),
        "neighbours": [name(n) for n in run.neighbours[peer]],
        **{key: int(getattr(counts, key)[peer]) for key in COUNTS},
        "bytes_sent": int(counts.sent[peer]) * counts.model_bytes,
        "seconds": run.seconds,
        "final": True,
    }
    mine = run.pairs.receiver == peer
    pairs = {
        name(sender): {"merged": int(m), "selected": int(s), "sampled": int(n)}
        for sender, m, s, n in zip(
            run.pairs.sender[mine],
            run.pairs.merged[mine],
            run.pairs.selected[mine],
            run.pairs.sampled[mine],
            strict=True,
        )
    }
    for file, data in (("peer", card), ("result", result), ("pairs", pairs)):
        (home / f"{file}.json").write_text(json.dumps(data))
    updates = run.history.peer == peer
    write_table(home / "history.parquet", {k: v[updates] for k, v in vars(run.history).items() if k != "peer"})
    rows = comparisons.receiver == peer
    compared: dict[str, Any] = {k: v[rows] for k, v in vars(comparisons).items() if k != "receiver"}
    write_table(home / "comparisons.parquet", compared | {"sender": [name(s) for s in compared["sender"]]})
    save_file({k: t[peer].contiguous() for k, t in run.models.items()}, home / "models.safetensors")


def write_table(path: Path, columns: dict[str, Any]) -> None:
    pq.write_table(pa.table(columns), path)


def same_columns(a: object, b: object) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a))


def test_what_all_peers_share_is_held_once(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    for folder in folders:
        model = load_file(folder / "models.safetensors")
        save_file(model | {"frozen": torch.arange(1000.0)}, folder / "models.safetensors")
    composed = compose(folders, tmp_path / "run")
    (on_disk,) = ExperimentDir(tmp_path / "run").results()
    for found in (composed, on_disk):
        assert [bool(t.stride(0)) for name, t in found.models.items()] == [n != "frozen" for n in found.models]
        assert found.models[1]["frozen"].equal(torch.arange(1000.0))
    (file,) = (tmp_path / "run").glob("*/models.safetensors")
    assert load_file(file)["frozen"].shape[0] == 1


def test_taken_apart_and_composed_is_the_same_run(simulated: RunResult, tmp_path: Path) -> None:
    composed = compose(take_apart(simulated, tmp_path / "peers"), tmp_path / "run")
    (on_disk,) = ExperimentDir(tmp_path / "run").results()
    for found in (composed, on_disk):
        assert same_columns(found.history, simulated.history)
        assert same_columns(found.pairs, simulated.pairs)
        assert same_columns(found.communication, simulated.communication)
        assert same_columns(found.data_sizes, simulated.data_sizes)
        assert same_columns(found.comparisons, simulated.comparisons)
        assert (found.clusters, found.cluster_names) == (simulated.clusters, simulated.cluster_names)
        assert (found.agreement, found.neighbours) == (simulated.agreement, simulated.neighbours)
        assert all(found.models[name].equal(simulated.models[name]) for name in simulated.models)
        expected = replace(summarise((simulated,)), mean_batch=1.0)
        assert asdict(summarise((found,))) == asdict(expected)
        assert found.warnings == ()


def test_peers_bring_their_networks_and_what_each_was_standardised_by(simulated: RunResult, tmp_path: Path) -> None:
    """Numbers go by the order of names; where an older peer has none, the settings say what is known."""
    folders = take_apart(simulated, tmp_path / "peers")
    form = NetworkForm("", "own", (1, 4, 4), 3, class_names=("x", "y", "z"))
    for peer, folder in enumerate(folders):
        kept = Preparation(("a",), (Standard(np.array([float(peer)]), np.array([1.0])),))
        add_to_card(folder, network=form.to_json(), preparation=kept.without_numbers.to_json())
        (folder / "preparation.json").write_text(json.dumps(kept.to_json()))
    composed = compose(folders[::-1], tmp_path / "run")
    (on_disk,) = pens.load(tmp_path / "run").runs
    for found in (composed, on_disk):
        assert (found.network, found.preparation and found.preparation.columns) == (form, ("a",))
        standards = [found.preparation and found.preparation.standard_of(peer) for peer in range(len(folders))]
        assert [of and of.shift.tolist() for of in standards] == [[peer] for peer in range(len(folders))]
    (folders[1] / "preparation.json").unlink()
    hidden = compose(folders, tmp_path / "hidden").preparation
    assert hidden
    assert (hidden.columns, hidden.standard_of(1), hidden.lost) == (("a",), None, True)
    add_to_card(folders[1], preparation={"columns": ["b"]})
    other = compose(folders, tmp_path / "other")
    assert any(text.startswith("peer-01: its features are b, but those of peer-00 a:") for text in other.warnings)
    assert other.preparation
    assert (other.preparation.columns, other.preparation.standard_of(1), other.preparation.lost) == ((), None, False)
    add_to_card(folders[1], settings=SETTINGS.replace({"source": "t.csv"}).model_dump(mode="json"), preparation=None)
    older = compose(folders, tmp_path / "older").preparation
    assert older
    assert (older.standard_of(1), older.lost) == (None, True)


def add_to_card(folder: Path, **values: Any) -> None:
    """Replace values of a peer's card; None: leave them out."""
    card = {**json.loads((folder / "peer.json").read_text()), **values}
    (folder / "peer.json").write_text(json.dumps({key: value for key, value in card.items() if value is not None}))


def test_order_of_folders_does_not_matter_and_names_give_the_numbers(simulated: RunResult, tmp_path: Path) -> None:
    count = simulated.num_peers
    folders = take_apart(simulated, tmp_path / "peers", lambda peer: f"p{count - 1 - peer}")
    composed = compose(folders, tmp_path / "run")
    assert composed.accuracy.tolist() == simulated.accuracy[::-1].tolist()
    matrix, before = composed.pairs.merge_matrix(count), simulated.pairs.merge_matrix(count)
    assert np.array_equal(matrix, before[::-1, ::-1])


def test_loaded_it_predicts_by_names(tmp_path: Path) -> None:
    simulated = digits(methods="pens").runs[0]
    compose(take_apart(simulated, tmp_path / "peers"), tmp_path / "run")
    for folder in (tmp_path, tmp_path / "run"):  # as `pens up` has it, and the run directory itself
        (run,) = pens.load(folder).runs
        assert run.to_table()["name"].to_pylist() == list(run.peer_names)
        x = np.random.default_rng(0).random((4, 1, 8, 8))
        found = run.predict(run.peer_names[1], x)
        assert found.tolist() == simulated.predict(1, x).tolist()


def test_show_and_report_read_it(simulated: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compose(take_apart(simulated, tmp_path / "peers"), tmp_path / "run")
    main_ok(["show", str(tmp_path / "run")])
    assert f"{100 * simulated.mean_accuracy:.1f}" in capsys.readouterr().out
    main_ok(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "real peers" in page
    assert "virtual time" not in page


def main_ok(arguments: Sequence[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert not stop.value.code


@pytest.mark.parametrize("missing", ["result.json", "pairs.json", "models.safetensors", "comparisons.parquet"])
def test_a_peer_that_was_killed_takes_part_with_what_is_there(
    simulated: RunResult, tmp_path: Path, missing: str
) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    (folders[2] / missing).unlink()
    composed = compose(folders, tmp_path / "run")
    assert composed.num_peers == simulated.num_peers
    assert any(missing in text for text in composed.warnings) or missing == "comparisons.parquet"
    if missing == "result.json":
        mine = simulated.history.peer == 2
        assert composed.accuracy[2] == simulated.history.val_accuracy[mine][-1]
        assert any("exited uncleanly" in text for text in composed.warnings)
    assert read_studies([tmp_path / "run"])[0].num_peers == simulated.num_peers


def test_peers_of_an_older_version_call_their_cluster_a_kind(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    for peer, folder in enumerate(folders):
        change(folder / "peer.json", cluster=None, kind=simulated.cluster_label(peer))
    composed = compose(folders, tmp_path / "run")
    assert (composed.clusters, composed.cluster_names) == (simulated.clusters, simulated.cluster_names)


@pytest.mark.parametrize("missing", ["peer.json", "history.parquet"])
def test_a_peer_without_an_update_is_named_and_left_out(simulated: RunResult, tmp_path: Path, missing: str) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    (folders[0] / missing).write_bytes(b"")
    composed = compose(folders, tmp_path / "run")
    assert composed.num_peers == simulated.num_peers - 1
    assert any("peer-00: the peer completed no update" in text for text in composed.warnings)
    assert read_studies([tmp_path / "run"])[0].num_peers == simulated.num_peers - 1


def test_rotations_of_a_turn_and_more_stand_in_the_order_of_the_settings(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    turned = SETTINGS.replace({"rotations": [540, 360]}).model_dump(mode="json")
    for peer, folder in enumerate(folders):
        change(folder / "peer.json", settings=turned, cluster="0°" if peer < 3 else "180°", step1_epochs=peer + 1)
    composed = compose(folders, tmp_path / "run")
    assert composed.cluster_names == ("180°", "0°")
    assert composed.step1_epochs == (1, 2, 3, 4, 5, 6)
    change(folders[0] / "peer.json", step1_epochs=None)
    assert compose(folders, tmp_path / "older").step1_epochs is None


def test_where_a_kind_is_not_known_nobody_is_told_right_or_wrong(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    change(folders[1] / "peer.json", cluster=None)
    composed = compose(folders, tmp_path / "run")
    assert composed.agreement is None
    assert (composed.clusters, composed.cluster_names) == (None, ())
    assert read_studies([tmp_path / "run"])


def test_the_report_of_peers_with_own_data_says_only_what_is_known(
    simulated: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["alice", "bob", "carol"]
    folders = take_apart(simulated, tmp_path / "peers", lambda peer: [*names, "dave", "erin", "frank"][peer])[:3]
    for folder in folders:  # as older peers left it: not that the data were their own
        change(folder / "peer.json", cluster=None, data_sizes={"train": 70, "val": 30})
        change(folder / "result.json", accuracy=None)
    compose(folders, tmp_path / "run")
    (study,) = read_studies([tmp_path / "run"])
    assert (study.record.own_parts, study.runs[0].peer_names) == (("data",), tuple(names))
    assert not study.clusters_known
    main_ok(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "<title>pens: own data, 3 real peers</title>" in page
    assert "own data: 3 peers (alice, bob, carol), 70 training samples each" in page
    for claim in ("unknown", "digits:", "own cluster", "pens run", "with precision"):
        assert claim not in page
    for name in names:  # along both sides of the map
        assert page.count(f">{name}</text>") == 2
    assert "<pre>pens peer CONFIG.toml</pre>" in page
    assert "3 of 3 peers had no test data" in page
    assert ">test accuracy" not in page
    main_ok(["show", str(tmp_path / "run")])
    shown = capsys.readouterr().out
    assert "own data: 3 peers, 1 seed" in shown


def test_a_command_that_pens_would_refuse_is_not_shown(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    compose(folders[:5], tmp_path / "five")  # of two rotations
    compose(folders, tmp_path / "six")
    for name, simulates in (("five", False), ("six", True)):
        main_ok(["report", str(tmp_path / name), "--out", str(tmp_path / f"{name}.html")])
        page = (tmp_path / f"{name}.html").read_text()
        assert ("<pre>pens run digits" in page) == simulates
        assert ("<pre>pens peer CONFIG.toml</pre>" in page) != simulates


def test_peers_that_left_no_sizes_have_none(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    change(folders[1] / "peer.json", data_sizes=None)
    assert compose(folders, tmp_path / "run").data_sizes is None
    main_ok(["report", str(tmp_path / "run"), "--out", str(tmp_path / "page.html")])
    assert "training samples each" not in (tmp_path / "page.html").read_text()


def test_late_peers_stand_later_on_the_common_clock(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    change(folders[3] / "peer.json", started=1e9 + 50)
    late = compose(folders, tmp_path / "run").history
    assert late.time[late.peer == 3].min() > 50
    assert np.all(np.diff(late.time) >= 0)


def test_what_peers_found_of_each_others_models_is_added_up(simulated: RunResult, tmp_path: Path) -> None:
    """Peer 3 started 50 seconds later, and peer 0 trusts. Whoever is not shown has no number."""
    folders = take_apart(simulated, tmp_path / "peers")
    assert compose(folders, tmp_path / "trusting").trust is None
    change(folders[3] / "peer.json", started=1e9 + 50)
    found: dict[int, list[list[object]]] = {3: [[2.5, "peer-04"], [3.0, "gone"]], 1: [[60.0, "peer-00"]], 2: []}
    for peer, dropped in found.items():
        verdicts = {"good": 10 * peer, "hurts": 1, "echo": 2, "absurd": 0, "twin": peer}
        trust = {"verdicts": verdicts, "kept_own": peer, "judged": 100 + peer, "dropped": dropped}
        change(folders[peer] / "result.json", trust=trust)
    composed = compose(folders, tmp_path / "run")
    (on_disk,) = ExperimentDir(tmp_path / "run").results()
    verdicts = {"good": 60, "hurts": 3, "echo": 6, "absurd": 0, "twin": 6}
    expected = TrustRecord(verdicts, 6, 306, (Dropped(52.5, 3, 4), Dropped(60.0, 1, 0)))
    assert composed.trust == on_disk.trust == expected


def test_settings_that_differ_are_told(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    other = SETTINGS.replace({"lr": 0.5}).model_dump(mode="json")
    change(folders[3] / "peer.json", settings=other)
    assert any("peer-03: its settings differ" in text for text in compose(folders, tmp_path / "run").warnings)


def test_records_of_before_a_setting_had_its_name_are_read(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    older = SETTINGS.model_dump(mode="json")
    older["pens"]["fresh"] = older["pens"].pop("step2_model") == "first"
    for folder in folders:
        change(folder / "peer.json", settings=older)
    compose(folders, tmp_path / "run")
    assert ExperimentDir(tmp_path / "run").read().settings.pens == SETTINGS.pens


def test_own_parts_are_told(simulated: RunResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    change(folders[0] / "peer.json", own_parts=["data"])
    compose(folders, tmp_path / "run")
    main_ok(["show", str(tmp_path / "run")])
    assert "own data: 6 peers" in capsys.readouterr().out


def test_methods_and_seeds_share_a_run_directory(simulated: RunResult, tmp_path: Path) -> None:
    compose(take_apart(simulated, tmp_path / "a"), tmp_path / "run")
    folders = take_apart(simulated, tmp_path / "b")
    for folder in folders:
        change(folder / "peer.json", seed=1)
    compose(folders, tmp_path / "run")
    assert [run.seed for run in ExperimentDir(tmp_path / "run").results()] == [0, 1]


def test_what_cannot_be_composed_is_refused(simulated: RunResult, tmp_path: Path) -> None:
    folders = take_apart(simulated, tmp_path / "peers")
    with pytest.raises(RunDirError, match="name each peer's folder once"):
        compose([*folders, folders[0]], tmp_path / "run")
    with pytest.raises(RunDirError, match="no complete update of any peer"):
        compose([tmp_path / "nowhere"], tmp_path / "run")
    change(folders[0] / "peer.json", settings={"peers": "many"})
    with pytest.raises(RunDirError, match="not the records of a peer"):
        compose(folders, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_composed_run_cannot_be_resumed(simulated: RunResult, tmp_path: Path) -> None:
    compose(take_apart(simulated, tmp_path / "peers"), tmp_path / "run")
    with pytest.raises(RunDirError, match="restart the peers"):
        pens.resume(tmp_path / "run")


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_a_table_that_is_replaced_while_it_is_read_is_one_or_the_other(tmp_path: Path) -> None:
    path, sizes, over = tmp_path / "history.parquet", (3, 4000), threading.Event()

    def write(size: int) -> None:
        table = pa.table({"x": np.random.default_rng(size).random(size)})
        replace_file(path, lambda p: pq.write_table(table, p), durable=False)

    def go_on_writing() -> None:
        while not over.is_set():
            for size in sizes:
                write(size)

    write(3)
    writer = threading.Thread(target=go_on_writing)
    writer.start()
    try:
        assert {len(read_table(path)["x"]) for _ in range(300)} <= set(sizes)
    finally:
        over.set()
        writer.join()
