# SPDX-License-Identifier: Apache-2.0
"""What a peer tells about itself, over real HTTP."""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pens.errors import AddressError
from pens.network.operating.monitor import Monitor, Vitals

WELL = Vitals(
    name="clinic-a",
    version="1.2",
    phase="searching",
    step=7,
    seconds_since_update=2.5,
    members={"alive": 5, "suspect": 1},
    neighbours=("b", "c", "d"),
    models_in=11,
    models_out=13,
    bytes_in=1100,
    bytes_out=1300,
    bytes_relayed=1700,
    refusals={"not finite": 2, 'odd "reason"\n': 1},
    val_accuracy=0.75,
    kept_val_accuracy=0.8,
    val_gain=0.25,
    progress=(3, 20),
    first_val_accuracy=0.5,
    val_loss=0.5,
    training_s=42.0,
    fingerprint="12ab",
    why_apart={"c": "task: 'a' here, 'b' there"},
    undone=3,
    verdicts={"good": 5, "echo": 1},
    distrusted=("m",),
    expiry={("certificate", "clinic-a"): 86400.0, ("revocation list", "ours 0A:1B"): -60.0},
)


class Patient:
    """Somebody whose vitals change."""

    def __init__(self) -> None:
        self.now = WELL

    def vitals(self) -> Vitals:
        return self.now


@pytest.fixture
def patient() -> Patient:
    return Patient()


@pytest.fixture
def monitor(patient: Patient) -> Iterator[Monitor]:
    with Monitor(0, patient.vitals) as monitor:
        yield monitor


def get(monitor: Monitor, path: str, accept: str = "") -> tuple[int, str, str]:
    """Status, content type and body."""
    request = urllib.request.Request(f"http://127.0.0.1:{monitor.port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers["Content-Type"], error.read().decode()


def metrics(monitor: Monitor) -> dict[tuple[str, str], float]:
    """By name and label."""
    families = text_string_to_metric_families(get(monitor, "/metrics")[2])
    return {(s.name, "/".join(s.labels.values())): s.value for family in families for s in family.samples}


def test_health(monitor: Monitor) -> None:
    status, content_type, body = get(monitor, "/healthz")
    assert (status, content_type) == (200, "application/json")
    assert json.loads(body) == {
        "healthy": True,
        "status": "healthy",
        "trouble": None,
        "name": "clinic-a",
        "version": "1.2",
        "phase": "searching",
        "step": 7,
        "seconds_since_update": 2.5,
        "members": {"alive": 5, "suspect": 1},
        "agreement": {"fingerprint": "12ab", "does_not_fit": {"c": "task: 'a' here, 'b' there"}},
        "neighbours": ["b", "c", "d"],
        "distrusted": ["m"],
        "updates_undone": 3,
        "done": False,
        "metric": {"name": "accuracy", "unit": "%", "higher_is_better": True},
        "val_accuracy": 0.75,
        "kept_val_accuracy": 0.8,
        "first_val_accuracy": 0.5,
        "alone_val_accuracy": None,
        "gain": 0.25,
        "progress": {"done": 3, "most": 20},
        "models": {"in": 11, "out": 13},
        "bytes": {"in": 1100, "out": 1300},
    }


def test_trouble_is_503_with_its_reason(patient: Patient, monitor: Monitor) -> None:
    patient.now = replace(WELL, trouble="no update for an hour")
    status, _, body = get(monitor, "/healthz")
    assert status == 503
    assert json.loads(body)["trouble"] == "no update for an hour"
    assert json.loads(body)["status"] == "unhealthy"
    assert metrics(monitor)["pens_healthy", ""] == 0


def test_degraded_is_200_with_its_reason(patient: Patient, monitor: Monitor) -> None:
    """Starting it again would not help, and one odd member must not have all others restarted."""
    patient.now = replace(WELL, degraded="b: another network", misfits=1)
    status, _, body = get(monitor, "/healthz")
    assert status == 200
    told = json.loads(body)
    assert (told["healthy"], told["status"], told["trouble"]) == (False, "degraded", "b: another network")
    found = metrics(monitor)
    assert found["pens_healthy", ""] == found["pens_degraded", ""] == found["pens_members_of_another_network", ""] == 1


def test_metrics(monitor: Monitor) -> None:
    assert metrics(monitor) == {
        ("pens_info", "clinic-a/1.2"): 1,
        ("pens_phase", "searching"): 1,
        ("pens_healthy", ""): 1,
        ("pens_degraded", ""): 0,
        ("pens_members_of_another_network", ""): 0,
        ("pens_step", ""): 7,
        ("pens_progress_ratio", ""): 0.15,
        ("pens_gain_over_alone", ""): 0.25,
        ("pens_neighbours", ""): 3,
        ("pens_members", "alive"): 5,
        ("pens_members", "suspect"): 1,
        ("pens_models_total", "in"): 11,
        ("pens_models_total", "out"): 13,
        ("pens_bytes_total", "in"): 1100,
        ("pens_bytes_total", "out"): 1300,
        ("pens_relayed_bytes_total", ""): 1700,
        ("pens_refusals_total", "not finite"): 2,
        ("pens_refusals_total", 'odd "reason"\n'): 1,
        ("pens_updates_undone_total", ""): 3,
        ("pens_members_dropped", ""): 1,
        ("pens_models_judged_total", "good"): 5,
        ("pens_models_judged_total", "echo"): 1,
        ("pens_expiry_seconds", "certificate/clinic-a"): 86400,
        ("pens_expiry_seconds", "revocation list/ours 0A:1B"): -60,
        ("pens_training_seconds_total", ""): 42,
        ("pens_update_age_seconds", ""): 2.5,
        ("pens_validation_accuracy", ""): 0.75,
        ("pens_compared_validation_accuracy", "kept"): 0.8,
        ("pens_compared_validation_accuracy", "first training"): 0.5,
        ("pens_validation_loss", ""): 0.5,
    }


def test_metrics_follow_the_patient_and_leave_out_what_is_not_known(patient: Patient, monitor: Monitor) -> None:
    patient.now = Vitals("b", "1.2", "joining", 0)
    found = metrics(monitor)
    assert found["pens_phase", "joining"] == 1
    assert ("pens_validation_loss", "") not in found
    assert ("pens_update_age_seconds", "") not in found


def test_prometheus_may_ask_for_openmetrics(monitor: Monitor) -> None:
    status, content_type, body = get(monitor, "/metrics", "application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith("# EOF\n")


def test_other_pages_are_not_there(monitor: Monitor) -> None:
    assert get(monitor, "/")[0] == 404


def test_a_slow_caller_does_not_keep_others_waiting(monitor: Monitor) -> None:
    with socket.create_connection(("127.0.0.1", monitor.port)) as slow:
        slow.sendall(b"GET /healthz HT")
        assert get(monitor, "/healthz")[0] == 200


def test_a_taken_port_is_named(monitor: Monitor, patient: Patient) -> None:
    with pytest.raises(AddressError, match=rf"metrics_port = {monitor.port}: .*another port"):
        Monitor(monitor.port, patient.vitals).start()


def test_only_this_machine_can_connect(monitor: Monitor) -> None:
    assert monitor._server is not None
    assert monitor._server.server_address[0] == "127.0.0.1"


def test_after_a_stop_the_port_is_free_and_no_thread_serves(patient: Patient) -> None:
    monitor = Monitor(0, patient.vitals)
    monitor.start()
    port = monitor.port
    monitor.stop()
    monitor.stop()
    with Monitor(port, patient.vitals) as again:
        assert get(again, "/healthz")[0] == 200
    assert not any(thread.name == "monitor" and thread.is_alive() for thread in threading.enumerate())
