# SPDX-License-Identifier: Apache-2.0
"""Nobody but a method's own file compares with its name, and nobody else keeps lists of methods.

Names are data in three places: the table of what is built in (`parts.py`), the choices of presets, and the paper's own
tables and figures (`paper/exhibits.py`). Even there nothing is decided by a name.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pens
from pens.parts import METHODS

SOURCE = Path(pens.__file__).parent
DATA = {
    SOURCE / "parts.py",
    SOURCE / "experiment" / "defaults.py",
    SOURCE / "experiment" / "presets.py",
    SOURCE / "paper" / "exhibits.py",
}
NAMES = set(METHODS.built_in)
SECTION = "pens"
"""A section of the settings, a command and a package are called so, too."""
LOOKUPS = {"find", "find_method", "method_of", "networked_method", "of", "of_method", "spec_of"}


def named_in(source: str, data: bool = False) -> list[str]:
    """Where a source decides by a method's name, or lists methods. `data`: where it may list them."""
    return [f"line {node.lineno}: {what}" for node, what in _found(ast.parse(source), data)]


def _found(tree: ast.AST, data: bool) -> Iterator[tuple[Any, str]]:
    words = {id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript) and _are_other_words(node)}
    for node in ast.walk(tree):
        if id(node) in words:
            continue
        if isinstance(node, ast.Compare) and _names_below(node.left, *node.comparators):
            yield node, "compares with the name of a method"
        elif isinstance(node, ast.MatchValue) and _names_below(node.value):
            yield node, "matches the name of a method"
        elif isinstance(node, ast.Call) and _asks_by_name(node):
            yield node, "asks for a method by its name"
        elif not data and _is_list(_elements(node)):
            yield node, "lists methods"


def _are_other_words(node: ast.Subscript) -> bool:
    """Whether these are the values of a setting, one of which has the name of a method by chance."""
    values = {one.value for one in _elements(node.slice) if isinstance(one, ast.Constant)}
    return isinstance(node.value, ast.Name) and node.value.id == "Literal" and bool(values - NAMES)


def _elements(node: ast.AST) -> list[ast.expr]:
    """Of a display; the keys of a dict."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return node.elts
    return [key for key in node.keys if key] if isinstance(node, ast.Dict) else []


def _names_below(*nodes: ast.AST) -> set[str]:
    """Names that stand there themselves, or in a display there; not those within a call or a subscript."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and node.value in NAMES:
            found.add(str(node.value))
        elif isinstance(node, ast.Tuple | ast.List | ast.Set):
            found |= _names_below(*node.elts)
    return found


def _asks_by_name(call: ast.Call) -> bool:
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    names = _names_below(*call.args)
    return bool(names - {SECTION}) or (function in LOOKUPS and bool(names))


def _is_list(elements: list[ast.expr]) -> bool:
    names = _names_below(*elements)
    return len(names) > 1 or bool(names - {SECTION})


def test_names_of_methods_decide_nothing() -> None:
    own = {Path(str(inspect.getsourcefile(type(METHODS.find(name))))) for name in METHODS.built_in}
    assert own < set((SOURCE / "methods").iterdir())  # the folder has files, too, that are no method's own
    for path in SOURCE.rglob("*.py"):
        if path not in own:
            found = named_in(path.read_text(encoding="utf-8"), data=path in DATA)
            assert not found, f"{path.relative_to(SOURCE)}, {'; '.join(found)}: ask the method instead"


@pytest.mark.parametrize(
    "source",
    [
        "run.method == 'central'",
        "'local' != method",
        "method in ('random', other)",
        "method not in {'pens'}",
        "study.of('pens')",
        "found.get('random')",
        "SELECTING = ('pens', 'pens+')",
        "COLOURS = {'local': '#6f6f6f'}",
        "match method:\n    case 'oracle' | 'oracle+':\n        pass",
    ],
)
def test_names_are_seen_however_they_are_written(source: str) -> None:
    assert named_in(source)


@pytest.mark.parametrize("source", ["tree.get('pens', {})", "['pens', 'run']", "help = 'local'", "words == ['x', 'y']"])
def test_other_things_may_be_called_so(source: str) -> None:
    assert not named_in(source)


def test_data_may_list_names_and_decide_nothing_by_them() -> None:
    assert not named_in("ORDER = ('central', 'oracle')", data=True)
    assert named_in("method == 'central'", data=True)


def test_a_method_is_applied_in_one_place() -> None:
    """`RunSettings` come from `spec.py` alone, which is the only one to call a method's `resolve`."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        makes = "RunSettings(" in text.replace("class RunSettings(", "") or "RunSettings.model_" in text
        applies = "method.resolve(" in text or "super().resolve(" in text
        assert (makes or applies) == (path == SOURCE / "methods" / "spec.py"), path
