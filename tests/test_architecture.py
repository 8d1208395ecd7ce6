# SPDX-License-Identifier: Apache-2.0
"""docs/architecture.md names a test for each rule of the paper: these tests are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def rules() -> list[list[str]]:
    """The rows of the table of rules: rule, section, place, test."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.split("## Every rule of the paper, and where it lives")[1].split("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
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
