"""Who merged whom: the paper's figure 2."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np

from pens.data.samples import Array
from pens.report.course import MergeMap
from pens.report.panel import Chart
from pens.report.svg import Canvas


def merge_chart(merges: MergeMap, most: float) -> Chart:
    """Figure 2 for one method; `most` is the value of the lightest colour, the same for all methods."""
    left, top, side = 44.0, 44.0, 280.0
    canvas = Canvas(f"How often peers merged each other's models with {merges.method}", 404)
    canvas.text(0, 14, merges.method, merges.method, bold=True, size=13)
    canvas.text(left + side / 2, 32, "sending peer", "soft", "middle")
    canvas.text(10, top + side / 2, "receiving peer", "soft", "middle", turned=True)
    canvas.image(left, top, side, side, _png(merges.mean / most))
    for name, begin, end in _runs_of(merges.kinds):
        middle, edge = (begin + end) / 2 / len(merges.kinds) * side, begin / len(merges.kinds) * side
        if begin:
            canvas.line(left + edge, top, left + edge, top + side, "rule", 1.5)
            canvas.line(left, top + edge, left + side, top + edge, "rule", 1.5)
        label = _cut(name, (end - begin) / len(merges.kinds) * side)
        canvas.text(left + middle, top + side + 16, label, "ink", "middle")
        canvas.text(left - 6, top + middle, label, "ink", "middle", turned=True)
    ramp = np.linspace(0, 1, 64)[None]
    canvas.text(left, 372, "0", "soft", "end", size=12)
    canvas.image(left + 6, 362, side - 84, 11, _png(ramp))
    canvas.text(left + side, 372, f"{most:.3g} times", "soft", "end")
    canvas.text(left + 6, 392, "merges of one peer's models by another", "soft")
    rows = tuple(
        (_span(merges.groups[i]), merges.kinds[i], _span(merges.groups[j]), merges.kinds[j], float(merges.mean[i, j]))
        for i in range(len(merges.groups))
        for j in range(len(merges.groups))
    )
    columns = ("receiving_peers", "receiving_kind", "sending_peers", "sending_kind", "merges_per_pair")
    caption = f"{merges.method}, seed {merges.seed}: {100 * merges.within:.1f} % of merges within the own kind."
    return Chart(f"merges-{merges.method}", caption, canvas.svg(), columns, rows)


def _png(values: Array) -> str:
    """Numbers from 0 to 1 as an image.  [row, column]"""
    from matplotlib.image import imsave  # here: only a report has to wait for it

    file = io.BytesIO()
    imsave(file, values, format="png", cmap="magma", vmin=0, vmax=1)
    return base64.b64encode(file.getvalue()).decode()


def _runs_of(names: Sequence[str]) -> list[tuple[str, int, int]]:
    """(name, begin, end) of each stretch of equal names."""
    begins = [i for i, name in enumerate(names) if i == 0 or names[i - 1] != name]
    return [(names[b], b, e) for b, e in zip(begins, [*begins[1:], len(names)], strict=True)]


def _cut(name: str, room: float) -> str:
    """A name that fits, with … for what does not; nothing where not even that would."""
    letters = int(room / 7)
    return name if len(name) <= letters else f"{name[: letters - 1]}…" if letters > 1 else ""


def _span(peers: Sequence[int]) -> str:
    """7, 7–12 or, where numbers are missing in between, 7…12"""
    if len(peers) == 1:
        return str(peers[0])
    return f"{peers[0]}{'–' if peers[-1] - peers[0] + 1 == len(peers) else '…'}{peers[-1]}"
