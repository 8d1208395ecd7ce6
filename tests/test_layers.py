# SPDX-License-Identifier: Apache-2.0
"""The architecture, as imports: a module imports only from modules above it in this list (docs/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pens
from pens.version import VERSION

SOURCE = Path(pens.__file__).parent

LAYERS = [
    "version",
    "errors",
    "parts",
    "rng",
    "processors",
    "config",
    "data.samples",
    "ledger",
    "data.formats",
    "data.sources",
    "data.scenarios",
    "partitions.partition",
    "partitions.rotation",
    "partitions.groups",
    "partitions.labels",
    "partitions.dirichlet",
    "partitions.shards",
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
    "merging.rule",
    "merging.mean",
    "merging.weighted",
    "merging.ordered",
    "merging.median",
    "merging.trimmed",
    "merging.clipped",
    "merging.merger",
    "merging.trial",
    "calls",
    "bench",
    "messages",
    "topology",
    "topologies.topology",
    "topologies.complete",
    "topologies.ring",
    "topologies.regular",
    "topologies.edges",
    "policies",
    "protocol.plan",
    "protocol.situation",
    "protocol.behaviour",
    "protocol.alone",
    "protocol.admission",
    "protocol.gossiping",
    "protocol.searching",
    "protocol.starting",
    "peer",
    "links",
    "scheduler",
    "metrics",
    "jobs",
    "curves",
    "received",
    "learners",
    "simulator",
    "methods.method",
    "methods.random",
    "methods.pens",
    "methods.pens_plus",
    "methods.local",
    "methods.oracle",
    "methods.central",
    "methods.dac",
    "methods.dpsgd",
    "methods.el",
    "methods.spec",
    "methods.names",
    "results",
    "files",
    "runlog",
    "running",
    "presets",
    "catalogue",
    "completion",
    "experiment",
    "report.discovered",
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
    "network.control",
    "network.state",
    "network.past",
    "network.status",
    "network.misfits",
    "network.progress",
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
PURE = [
    "messages",
    "topology",
    "policies",
    "peer",
    "rng",
    "protocol.plan",
    "protocol.situation",
    "protocol.behaviour",
    "protocol.alone",
    "protocol.admission",
    "protocol.gossiping",
    "protocol.searching",
    "protocol.starting",
]


def imports_of(source: str) -> set[str]:
    """Every module that a source imports; "package.name" where it takes a name that is no module from a package."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: write imports in full"
            module = node.module or ""
            is_module = module.removeprefix("pens.") in LAYERS
            names |= {module} if is_module else {f"{module}.{alias.name}" for alias in node.names}
    return names


def imports_from_below(source: str, name: str) -> set[str]:
    """What a module imports of this package that does not stand above it. A package itself stands below them all."""
    above = {f"pens.{other}" for other in LAYERS[: LAYERS.index(name)]}
    return {imported for imported in imports_of(source) if imported.split(".")[0] == "pens"} - above


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
    for name in LAYERS:
        below = imports_from_below(module_path(name).read_text(encoding="utf-8"), name)
        assert not below, f"{name} imports {', '.join(sorted(below))}, which does not stand above it"


@pytest.mark.parametrize(
    "source",
    [
        "from pens import __version__",
        "import pens",
        "from pens import cli",
        "import pens.cli",
        "from pens.cli import main",
    ],
)
def test_imports_from_below_are_seen_however_they_are_written(source: str) -> None:
    """The package itself imports experiments, so whoever imports the package does, too."""
    assert imports_from_below(f"def f():\n    {source}\n", "runlog")
    assert not imports_from_below(
        "from pens import rng\nfrom pens.version import VERSION\nimport pens.config", "runlog"
    )


def test_the_version_is_one_constant_that_needs_no_import() -> None:
    assert pens.__version__ == VERSION
    assert not imports_of(module_path("version").read_text(encoding="utf-8"))


def test_peers_decide_without_tensors_clocks_sockets_files_or_logs() -> None:
    forbidden = {"torch", "numpy", "time", "datetime", "asyncio", "socket", "logging", "os", "pathlib", "threading"}
    for name in PURE:
        roots = {imported.split(".")[0] for imported in imports_of(module_path(name).read_text(encoding="utf-8"))}
        assert not roots & forbidden, f"{name} must stay pure"


def test_public_names_are_there() -> None:
    assert sorted(pens.__all__) == pens.__all__
    assert all(hasattr(pens, name) for name in pens.__all__)
    assert set(pens.__all__) <= set(dir(pens))
    assert not hasattr(pens, "no_such_name")


def test_type_checkers_see_the_public_names_where_they_are_imported_from() -> None:
    source = (SOURCE / "__init__.py").read_text(encoding="utf-8")
    (checked,) = (
        node for node in ast.parse(source).body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    )
    seen = {
        alias.name: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == pens._MODULE_OF
    assert {*seen, "__version__"} == set(pens.__all__)


def test_importing_the_package_imports_nothing_large() -> None:
    code = "import sys, pens; dir(pens); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    roots = {name.partition(".")[0] for name in done.stdout.split()}
    assert "pens" in roots
    assert not roots & {"torch", "numpy", "sklearn", "matplotlib", "scipy", "grpc", "pyarrow", "pydantic", "rich"}
