# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md says what is there: packages in their order, all events and actions, and tests for each rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

from pens.protocol.messages import Action, Event
from tests.test_layers import LAYERS, NETWORK_LAYERS

ROOT = Path(__file__).parent.parent


def chapter(title: str) -> str:
    """One chapter of the page."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rules() -> list[list[str]]:
    """The rows of the table of rules: rule, section, place, test."""
    lines = [line for line in chapter("Every rule of the paper, and where it lives").splitlines() if line[:2] == "| "]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def functions_of(path: Path) -> set[str]:
    """Functions, methods and classes, whether they are tests or not."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def named(cell: str) -> list[tuple[str, list[str]]]:
    """`file.py`: `name`, `name`; `other.py`: … → the file and the names of each."""
    parts = [re.findall(r"`([^`]+)`", part) for part in cell.split(";")]
    return [(file, names) for file, *names in parts if file.endswith(".py")]


def test_every_rule_has_a_place_and_a_test_that_are_there() -> None:
    found = rules()
    assert len(found) > 15
    for rule, _, places, tests in found:
        assert named(tests), f"no test for: {rule}"
        for folder, cell in (("src/pens", places), ("tests", tests)):
            for file, names in named(cell):
                there = functions_of(ROOT / folder / file)
                assert set(names) <= there, f"{rule}: {folder}/{file} has no {sorted(set(names) - there)}"


def test_the_diagram_shows_all_events_and_actions() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    shown = {
        key: set(names.split(", ")) for key, names in re.findall(r"^ (events|actions): +(.*)$", text, re.MULTILINE)
    }
    assert shown["events"] == {event.__name__ for event in get_args(Event)}
    assert shown["actions"] == {action.__name__ for action in get_args(Action)}


def test_every_package_has_its_row_in_the_order_of_imports() -> None:
    firsts = [line.split("|")[1] for line in chapter("Packages").splitlines() if line[:2] == "| "]
    shown = [name.rstrip("/") for cell in firsts for name in re.findall(r"`([^`]+)`", cell)]
    assert [name for name in shown if name in LAYERS] == LAYERS


def test_every_package_of_the_network_has_its_row_in_the_order_of_imports() -> None:
    table = chapter("Packages").split("**Packages of the network.**")[1].split("\n**")[0]
    assert re.findall(r"^\| `(\w+)/`", table, re.MULTILINE) == NETWORK_LAYERS


def test_files_that_the_laws_name_are_there() -> None:
    files = re.findall(r"`(tests/[^`]+\.py)`", chapter("Laws, each a test"))
    assert len(set(files)) > 8
    assert not [file for file in files if not (ROOT / file).is_file()]
