# SPDX-License-Identifier: Apache-2.0
"""The architecture, as imports: a package imports only from packages above it in this list (docs/architecture.md)."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import pens
from pens.version import VERSION

SOURCE = Path(pens.__file__).parent

LAYERS = [
    "version",
    "errors",
    "printable",
    "hooks",
    "rng",
    "parts",
    "processors",
    "settings",
    "data",
    "tasks",
    "nets",
    "partitions",
    "engine",
    "merging",
    "protocol",
    "topologies",
    "attacks",
    "learning",
    "simulation",
    "methods",
    "inference",
    "measuring",
    "storage",
    "experiment",
    "paper",
    "report",
    "planning",
    "reproduce",
    "comparing",
    "tuning",
    "network",
    "command_line",
    "__main__",
]
NETWORK_LAYERS = ["certificates", "transport", "members", "node", "operating", "federation"]  # in pens.network
PURE = ["rng", "protocol", "topologies.views"]


def modules() -> list[str]:
    """Every module of the package, by its name without `pens.`."""
    paths = (path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    return sorted(".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths)


def module_path(name: str) -> Path:
    return SOURCE / (name.replace(".", "/") + ".py")


def room(name: str) -> str:
    """The package of a module, or the module itself where it stands in none."""
    return name.partition(".")[0]


def imports_of(source: str) -> set[str]:
    """Every module that a source imports; "package.name" where it takes a name that is no module from a package."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: write imports in full"
            module = node.module or ""
            is_module = module_path(module.removeprefix("pens.")).exists() or not module.startswith("pens")
            names |= {module} if is_module else {f"{module}.{alias.name}" for alias in node.names}
    return names


def own_imports(source: str) -> set[str]:
    """What a module imports of this package, by its name without `pens.`; "" for the package itself."""
    return {name[5:] for name in imports_of(source) if name.split(".")[0] == "pens"}


def room_in_network(name: str) -> str:
    """The package within `network` of a module; "" for one that stands elsewhere."""
    rooms = name.split(".")
    return rooms[1] if rooms[0] == "network" and len(rooms) > 1 else ""


def network_imports_from_below(source: str, name: str) -> set[str]:
    """What a module of `network` imports of `network` that does not stand above its package there."""
    allowed = set(NETWORK_LAYERS[: NETWORK_LAYERS.index(room_in_network(name)) + 1])
    return {
        imported
        for imported in own_imports(source)
        if room(imported) == "network" and room_in_network(imported) not in allowed
    }


def imports_from_below(source: str, name: str) -> set[str]:
    """What a module imports that does not stand above its package. The package `pens` itself stands below them all."""
    allowed = set(LAYERS[: LAYERS.index(room(name)) + 1])
    return {imported for imported in own_imports(source) if room(imported) not in allowed}


def test_every_package_stands_in_the_list() -> None:
    assert {room(name) for name in modules()} == set(LAYERS)


def test_packages_import_only_from_above() -> None:
    for name in modules():
        below = imports_from_below(module_path(name).read_text(encoding="utf-8"), name)
        assert not below, f"{name} imports {', '.join(sorted(below))}, which does not stand above it"


def test_every_package_of_the_network_stands_in_its_list() -> None:
    assert {room_in_network(name) for name in modules() if room(name) == "network"} == set(NETWORK_LAYERS)


def test_packages_of_the_network_import_only_from_above() -> None:
    for name in modules():
        if room(name) == "network":
            below = network_imports_from_below(module_path(name).read_text(encoding="utf-8"), name)
            assert not below, f"{name} imports {', '.join(sorted(below))}, which does not stand above it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: own_imports(module_path(name).read_text(encoding="utf-8")) & set(modules()) for name in modules()}
    tuple(TopologicalSorter(graph).static_order())  # raises CycleError and names the circle


@pytest.mark.parametrize(
    "source",
    [
        "from pens import __version__",
        "import pens",
        "from pens import command_line",
        "import pens.command_line.main",
        "from pens.command_line.main import main",
        "from pens.command_line import main",
    ],
)
def test_imports_from_below_are_seen_however_they_are_written(source: str) -> None:
    """The package itself imports experiments, so whoever imports the package does, too."""
    assert imports_from_below(f"def f():\n    {source}\n", "storage.runlog")
    assert not imports_from_below(
        "from pens import rng\nfrom pens.version import VERSION\nimport pens.settings.tree", "storage.runlog"
    )


@pytest.mark.parametrize("source", ["from pens.network.node.node import Node", "import pens.network.node.node"])
def test_imports_from_below_within_the_network_are_seen(source: str) -> None:
    assert network_imports_from_below(source, "network.transport.wire")
    assert not network_imports_from_below(source, "network.operating.assembly")
    assert not network_imports_from_below("from pens.settings import config", "network.transport.wire")


def test_the_version_is_one_constant_that_needs_no_import() -> None:
    assert pens.__version__ == VERSION
    assert not imports_of(module_path("version").read_text(encoding="utf-8"))


def test_peers_decide_without_tensors_clocks_sockets_files_or_logs() -> None:
    forbidden = {"torch", "numpy", "time", "datetime", "asyncio", "socket", "logging", "os", "pathlib", "threading"}
    pure = [name for name in modules() if name in PURE or room(name) in PURE]
    for name in pure:
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
