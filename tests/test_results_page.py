# SPDX-License-Identifier: Apache-2.0
"""docs/results.md: its programs run, and its table of columns is complete."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "results.md").read_text(encoding="utf-8")


def test_the_programs_of_the_page_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for program in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(program, "docs/results.md", "exec"), names)
    columns = {name for row in re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert columns - {"state_dict", "torchscript", "onnx"} == {*names["table"].column_names, "tested"}
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "peer3.safetensors", "peer3.pt"}
