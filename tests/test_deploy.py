# SPDX-License-Identifier: Apache-2.0
"""What deploy/ has: a unit, alerts, a dashboard and a container agree with what pens really does and serves."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry

from pens.errors import Interrupted, PensError, TemporaryError
from pens.network.operating.monitor import Vitals, _Metrics
from pens.tasks.metric import Measure

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
FUNCTIONS = {"sum", "rate", "increase", "max_over_time", "by", "on", "and", "or", "unless", "label_values"}
OTHERS = {"up": {"job", "instance"}}
"""Metrics that Prometheus itself makes."""


def served() -> dict[str, set[str]]:
    """Every metric that a monitor can serve, and its labels."""
    full = Vitals(
        name="a",
        version="1",
        phase="gossiping",
        step=1,
        seconds_since_update=1.0,
        members={"alive": 1},
        refusals={"malformed": 1},
        val_accuracy=0.5,
        val_loss=0.5,
        kept_val_accuracy=0.5,
        val_gain=0.1,
    )
    found: dict[str, set[str]] = {}
    for vitals in (full, replace(full, metric=Measure("rmse", "", higher_is_better=False))):
        registry = CollectorRegistry()
        registry.register(_Metrics(lambda vitals=vitals: vitals))  # type: ignore[misc]
        for family in registry.collect():
            for sample in family.samples:
                found[sample.name] = {*sample.labels, "instance", "job"}
    return found


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each metric of an expression with the labels that it asks for; a pattern of names as it is written."""
    bare = re.sub(r'"[^"]*"', '""', expression)
    assert bare.count("(") == bare.count(")")
    assert bare.count("{") == bare.count("}")
    assert bare.count("[") == bare.count("]")
    of_groups = re.compile(r"\b(by|on)\s*\(([^)]*)\)")
    for name, inside in re.findall(r"([a-z_]*)\{([^}]*)\}", expression):
        labels = dict(re.findall(r'(\w+)\s*=~?\s*"([^"]*)"', inside))
        yield labels.pop("__name__", name), labels
    rest = of_groups.sub(" ", re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare))
    for name in re.findall(r"\b[a-z_]+\b", rest):
        if name not in FUNCTIONS and not re.search(rf"\b{name}\{{", expression):
            yield name, {}


def assert_served(expression: str) -> None:
    known = served() | OTHERS
    found = list(selectors(expression))
    assert found, expression
    for pattern, labels in found:
        names = [name for name in known if re.fullmatch(pattern, name)]
        assert names, f"nobody serves {pattern} in {expression}"
        for name in names:
            assert labels.keys() <= known[name], f"{name} has no label {labels.keys() - known[name]}"


def test_a_metric_that_is_not_served_would_be_noticed() -> None:
    for wrong in ("pens_stepp > 1", 'pens_members{stat="alive"}', "rate(pens_models[5m])", "sum by (x) (pens_age)"):
        with pytest.raises(AssertionError, match=r"nobody serves|no label"):
            assert_served(wrong)


def test_alerts_are_about_metrics_that_are_served() -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus-alerts.yml").read_text(encoding="utf-8"))
    (group,) = rules["groups"]
    names = [rule["alert"] for rule in group["rules"]]
    assert len(names) == len(set(names)) > 5
    for rule in group["rules"]:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+[smhd]", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        assert_served(rule["expr"])
        for used in re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])):
            assert used == "instance"
    reasons = {label for rule in group["rules"] for label in re.findall(r'reason="([^"]*)"', rule["expr"])}
    assert reasons <= {"malformed", "handshake"}


def test_the_dashboard_shows_metrics_that_are_served() -> None:
    board = json.loads((DEPLOY / "grafana-dashboard.json").read_text(encoding="utf-8"))
    panels: list[dict[str, Any]] = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 10
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert all(0 <= x < 24 for x, _ in cells)
        taken |= cells
        for target in panel["targets"]:
            assert_served(target["expr"])
            assert target["datasource"]["uid"] == "${datasource}"
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert variables.keys() == {"datasource", "instance"}
    assert_served(variables["instance"]["definition"].removesuffix(", instance)") + ")")
    used = {name for panel in panels for name in re.findall(r"\$(\w+)", json.dumps(panel["targets"]))}
    assert used <= variables.keys()


def test_the_unit_starts_again_what_may_pass_by_itself() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(DEPLOY / "pens-peer.service")
    never = {int(status) for status in unit["Service"]["RestartPreventExitStatus"].split()}
    assert unit["Service"]["Restart"] == "on-failure"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert never == {PensError.exit_status}
    assert TemporaryError.exit_status == 75
    assert Interrupted.exit_status == 130
    guide = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    for status in (0, 1, PensError.exit_status, TemporaryError.exit_status):
        assert re.search(rf"^\| {status} \|", guide, re.MULTILINE), f"docs/deploy.md does not explain status {status}"


def builder() -> str | None:
    """A program that builds and runs containers here; None where there is none."""
    for name in ("podman", "docker"):
        if shutil.which(name) and not subprocess.run([name, "info"], capture_output=True, timeout=60).returncode:
            return name
    return None


@pytest.mark.slow
def test_the_container_is_built_and_its_peer_answers(tmp_path: Path) -> None:
    name = builder()
    if not name:
        pytest.skip("neither podman nor docker can build a container on this machine: deploy/Containerfile is untested")
    from tests.network.faults.harness import Site, wait_until

    site = Site(tmp_path, 1)
    site.configure({"wait_for": 0})
    (peer,) = site.peers
    text = peer.config.read_text().replace('state = "state-0"', 'state = "/state"')
    (tmp_path / "config.toml").write_text(re.sub(r"metrics_port = \d+", "metrics_port = 9400", text))
    tag, formed = f"pens-test-{time.time_ns()}", ["--format", "docker"] if name == "podman" else []
    subprocess.run([name, "build", *formed, "-f", "deploy/Containerfile", "-t", tag, "."], cwd=ROOT, check=True)
    mounts = ["-v", f"{tmp_path}:/config:ro{',U' if name == 'podman' else ''}"]
    options = ["--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--tmpfs", "/tmp"]
    started = subprocess.run([name, "run", "-d", *options, *mounts, tag], check=True, capture_output=True, text=True)
    container = started.stdout.strip()
    ask = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9400/healthz').status)"
    try:
        run = [name, "exec", container, "python", "-c", ask]
        wait_until(lambda: b"200" in subprocess.run(run, capture_output=True).stdout, "the peer in the container")
        subprocess.run([name, "stop", "-t", "60", container], check=True)
        ended = subprocess.run(
            [name, "inspect", "-f", "{{.State.ExitCode}}", container], capture_output=True, text=True
        )
        assert ended.stdout.strip() == "0"
    finally:
        subprocess.run([name, "rm", "-f", container], capture_output=True)
        subprocess.run([name, "rmi", "-f", tag], capture_output=True)
