"""The architecture, as imports: a module imports only from modules above it in this list (docs/architecture.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pens

SOURCE = Path(pens.__file__).parent

LAYERS = [
    "errors",
    "rng",
    "processors",
    "config",
    "data.samples",
    "ledger",
    "data.formats",
    "data.sources",
    "data.scenarios",
    "nets",
    "engine.bits",
    "engine.attention",
    "engine.homes",
    "engine.seam",
    "engine.patterns",
    "engine.native",
    "engine.native_conv",
    "engine.fused",
    "engine.fused_linear",
    "engine.fused_adam",
    "engine.lowering",
    "engine.devices",
    "engine.layout",
    "engine.rounding",
    "engine.network",
    "engine.costs",
    "engine.cores",
    "engine.stack",
    "engine.batches",
    "engine.fused_step",
    "engine.optimizers",
    "engine.update",
    "engine.training",
    "calls",
    "bench",
    "messages",
    "topology",
    "policies",
    "peer",
    "links",
    "scheduler",
    "metrics",
    "jobs",
    "curves",
    "received",
    "learners",
    "simulator",
    "results",
    "files",
    "runlog",
    "running",
    "presets",
    "experiment",
    "report.tables",
    "report.svg",
    "report.figures",
    "report.paper",
    "report.study",
    "report.analysis",
    "report.course",
    "report.panel",
    "report.charts.accuracy",
    "report.charts.curves",
    "report.charts.merges",
    "report.charts.neighbours",
    "report.charts.peers",
    "report.charts.costs",
    "report.charts.differences",
    "report.reproduce",
    "report.section",
    "report.glossary",
    "report.headline",
    "report.sections.accuracy",
    "report.sections.curves",
    "report.sections.merges",
    "report.sections.neighbours",
    "report.sections.peers",
    "report.sections.costs",
    "report.sections.luck",
    "report.sections.settings",
    "report.page",
    "network.codec",
    "network.logs",
    "network.monitor",
    "network.records",
    "reproduce.plan",
    "reproduce.store",
    "reproduce.compare",
    "reproduce.keep",
    "reproduce.pictures",
    "reproduce.estimates",
    "reproduce.run",
    "reproduce.show",
    "watch",
    "network.transport",
    "network.identity",
    "network.native",
    "network.limits",
    "network.wire_pb2",
    "network.wire",
    "network.grpc_server",
    "network.grpc_client",
    "network.grpc_transport",
    "network.memory",
    "network.membership",
    "network.gossiper",
    "network.reachable",
    "network.outbox",
    "network.learning",
    "network.state",
    "network.past",
    "network.status",
    "network.node",
    "network.peer_config",
    "network.assembly",
    "network.peer_command",
    "network.loopback",
    "network.company",
    "network.up",
    "network.commands",
    "cli",
    "__main__",
]
PURE = ["messages", "topology", "policies", "peer", "rng"]


def imports_of(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names |= {f"{module}.{alias.name}" for alias in node.names} | {module}
    return names


def module_path(name: str) -> Path:
    return SOURCE / (name.replace(".", "/") + ".py")


def test_every_module_stands_in_the_list() -> None:
    found = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert found == set(LAYERS)


def test_modules_import_only_from_above() -> None:
    for position, name in enumerate(LAYERS):
        below = {f"pens.{other}" for other in LAYERS[position:]}
        assert not imports_of(module_path(name)) & below, f"{name} imports from below itself"


def test_peers_decide_without_tensors_clocks_sockets_files_or_logs() -> None:
    forbidden = {"torch", "numpy", "time", "datetime", "asyncio", "socket", "logging", "os", "pathlib", "threading"}
    for name in PURE:
        roots = {imported.split(".")[0] for imported in imports_of(module_path(name))}
        assert not roots & forbidden, f"{name} must stay pure"


def test_public_names_are_there() -> None:
    assert sorted(pens.__all__) == pens.__all__
    assert all(hasattr(pens, name) for name in pens.__all__)
