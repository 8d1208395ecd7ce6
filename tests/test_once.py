# SPDX-License-Identifier: Apache-2.0
"""Each fact has one place: no text that users read, and no name of a type, is defined in two packages.

Texts within one package may be alike, such as the titles of its pictures.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from tests.test_layers import module_path, modules, room

_LONG = 24  # characters: shorter texts are words, and parts of words between values


def texts_of(source: str) -> Iterator[str]:
    """Longer texts of a source, the parts of f-strings among them, but no docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value.strip()
            if len(text) >= _LONG and " " in text:
                yield text


def types_of(source: str) -> Iterator[str]:
    """The names that a source gives to types, such as `Graph = Sequence[Sequence[PeerId]]`."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript | ast.BinOp):
            yield from (of.id for of in node.targets if isinstance(of, ast.Name) and of.id.istitle())


def rooms_of(found: Iterator[tuple[str, str]]) -> dict[str, set[str]]:
    """What stands in several packages, and in which."""
    rooms: dict[str, set[str]] = defaultdict(set)
    for what, module in found:
        rooms[what].add(room(module))
    return {what: where for what, where in rooms.items() if len(where) > 1}


def sources() -> dict[str, str]:
    return {name: module_path(name).read_text(encoding="utf-8") for name in modules()}


def test_no_text_stands_in_two_packages() -> None:
    assert not rooms_of((text, name) for name, source in sources().items() for text in texts_of(source))


def test_no_type_has_the_name_of_one_in_another_package() -> None:
    assert not rooms_of((of, name) for name, source in sources().items() for of in types_of(source))


def test_what_stands_in_two_packages_is_seen() -> None:
    said = 'def f(n):\n    """This only explains what f says."""\n    return f"{n} is too large for a small network"\n'
    assert list(texts_of(said)) == ["is too large for a small network"]
    assert list(types_of("Job = int | str\nN = 3 + 4\nName = dict[str, int]\nother = 3\n")) == ["Job", "N", "Name"]
    assert rooms_of(iter([("a", "data.samples"), ("a", "network.node.node"), ("b", "data.samples")])) == {
        "a": {"data", "network"}
    }
