# SPDX-License-Identifier: Apache-2.0
"""Files of comparisons in small, as a user writes them."""

from __future__ import annotations

from pathlib import Path

from tests.reproduce.trial import SMALL

TINY = "\n".join(f"{key} = {value!r}" for key, value in SMALL.items() if key != "dataset").replace("'", '"')
"""Settings with which a run takes a tenth of a second."""

HEAD = f"""
[settings]
preset = "digits"
{TINY}
"""

CLINICS = "\n".join(
    ["peer,a,b,label", *(f"clinic-{i % 5},{i % 7},{i % 3},{'yes' if i % 2 else 'no'}" for i in range(60))]
)
"""Own data of five peers, as a table."""


def written(folder: Path, text: str, name: str = "mine.toml") -> Path:
    """The path of a file with this text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path
