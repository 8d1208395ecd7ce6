# SPDX-License-Identifier: Apache-2.0
"""Results at a glance: a table of text for a prompt, and the same in HTML for a notebook.

The HTML takes its colours from the page around it, so that it is legible on light and on dark ones. All text is
escaped: names of methods, clusters and folders are users' own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from pens.measuring.metrics import Interval

Columns = Mapping[str, Sequence[str]]

_MOST_ROWS, _MOST_CHARACTERS = 16, 240
_LEFT = "method"  # the column whose cells are words; those of the others are numbers

_STYLE = """<style scoped>
.pens-result { overflow-x: auto; }
.pens-result, .pens-result * { color: inherit; background: none; }
.pens-result table { border-collapse: collapse; margin: 0.4em 0; font-variant-numeric: tabular-nums; }
.pens-result th, .pens-result td { padding: 0.25em 0.8em; text-align: right; border: 0; white-space: nowrap; }
.pens-result th { font-weight: 600; white-space: normal; border-bottom: 1px solid rgba(128, 128, 128, 0.8); }
.pens-result td { border-bottom: 1px solid rgba(128, 128, 128, 0.3); }
.pens-result th:first-child, .pens-result td:first-child { text-align: left; }
.pens-result .note { opacity: 0.8; font-size: 0.9em; margin: 0.2em 0; }
</style>"""


def as_text(title: str, columns: Columns, notes: Sequence[str] = ()) -> str:
    """A title, a table and notes, at most a screen of them."""
    shown, left_out = _first(columns)
    widths = {heading: max(map(len, (heading, *cells))) for heading, cells in shown.items()}
    rows = [list(shown), *map(list, zip(*shown.values(), strict=True))]
    lines = [
        "  ".join(_aligned(cell, heading, widths) for cell, heading in zip(row, shown, strict=True)) for row in rows
    ]
    table = [line.rstrip() for line in lines] if any(shown.values()) else []
    return "\n".join([_brief(title), *table, *map(_brief, (*left_out, *notes))])


def as_html(title: str, columns: Columns, notes: Sequence[str] = ()) -> str:
    """The same as HTML."""
    shown, left_out = _first(columns)
    head = "".join(f"<th>{escape(heading).replace(' %', '&nbsp;%')}</th>" for heading in shown)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in zip(*shown.values(), strict=True)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if rows else ""
    below = "".join(f'<p class="note">{escape(_brief(note))}</p>' for note in (*left_out, *notes))
    return f'<div class="pens-result">{_STYLE}<div>{escape(_brief(title))}</div>{table}{below}</div>'


def percent(value: Interval | None) -> str:
    """87.7 ± 2.3, or of two seeds 85.3 (84.1, 86.5); – where it is not known"""
    return "–" if value is None else value.brief()


def _first(columns: Columns) -> tuple[Columns, list[str]]:
    """As many rows as fit a screen, and a note on the others."""
    rows = len(next(iter(columns.values()), ()))
    note = [f"… and {rows - _MOST_ROWS} more"] if rows > _MOST_ROWS else []
    return {heading: cells[:_MOST_ROWS] for heading, cells in columns.items()}, note


def _aligned(cell: str, heading: str, widths: Mapping[str, int]) -> str:
    return cell.ljust(widths[heading]) if heading == _LEFT else cell.rjust(widths[heading])


def _brief(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"
