# SPDX-License-Identifier: Apache-2.0
"""Merge maps: whose models each peer merged (the paper's figure 2)."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np

from pens.data.samples import Array
from pens.report.merge_maps import MergeMap, stretches
from pens.report.panel import Chart
from pens.report.svg import Canvas

_MOST_NAMES = 12
"""The largest number of rows of a map that leaves room for the names of the peers."""


def merge_chart(merges: MergeMap, most: float) -> Chart:
    """Figure 2 for one method. `most`: the value of the lightest colour, the same for all methods."""
    left, top, side = 44.0, 44.0, 280.0
    canvas = Canvas(f"How often peers merged each other's models with {merges.method}", 404)
    canvas.text(0, 14, merges.method, merges.method, bold=True, size=13)
    canvas.text(left + side / 2, 32, "sending peer", "soft", "middle")
    canvas.text(10, top + side / 2, "receiving peer", "soft", "middle", turned=True)
    canvas.image(left, top, side, side, _png(merges.mean / most))
    rows = len(merges.sections)
    for _, begin, _ in stretches(merges.sections)[1:]:
        edge = begin / rows * side
        canvas.line(left + edge, top, left + edge, top + side, "rule", 1.5)
        canvas.line(left, top + edge, left + side, top + edge, "rule", 1.5)
    few = bool(merges.names) and rows <= _MOST_NAMES
    for name, begin, end in stretches(merges.names) if few else stretches(merges.sections):
        middle = (begin + end) / 2 / rows * side
        label = _cut(name, (end - begin) / rows * side)
        canvas.text(left + middle, top + side + 16, label, "ink", "middle")
        canvas.text(left - 6, top + middle, label, "ink", "middle", turned=True)
    ramp = np.linspace(0, 1, 64)[None]
    canvas.text(left, 372, "0", "soft", "end", size=12)
    canvas.image(left + 6, 362, side - 84, 11, _png(ramp))
    canvas.text(left + side, 372, f"{most:.3g} times", "soft", "end")
    canvas.text(left + 6, 392, "merges of one peer's models by another", "soft")
    who = merges.names or tuple(map(_span, merges.groups))
    numbers = tuple(
        (who[i], merges.sections[i], who[j], merges.sections[j], float(merges.mean[i, j]))
        for i in range(rows)
        for j in range(rows)
    )
    part = "cluster" if merges.within is not None else "discovered_group"
    columns = ("receiving_peers", f"receiving_{part}", "sending_peers", f"sending_{part}", "merges_per_pair")
    within = (
        "" if merges.within is None else f": {100 * merges.within:.1f} % of merges are within the receiver's cluster"
    )
    caption = f"{merges.method}, seed {merges.seed}{within}."
    return Chart(f"merges-{merges.method}", caption, canvas.svg(), columns, numbers)


def _png(values: Array) -> str:
    """Numbers from 0 to 1 as an image.  [row, column]"""
    from matplotlib.image import imsave  # imported here: only a report needs it

    file = io.BytesIO()
    imsave(file, values, format="png", cmap="magma", vmin=0, vmax=1)
    return base64.b64encode(file.getvalue()).decode()


def _cut(name: str, room: float) -> str:
    """A name cut to the room that it has, with … for the rest; empty where there is no room."""
    letters = int(room / 7)
    return name if len(name) <= letters else f"{name[: letters - 1]}…" if letters > 1 else ""


def _span(peers: Sequence[int]) -> str:
    """The numbers of peers in a row: 7, 7–12 or, where they are not consecutive, 7 9 12"""
    if len(peers) > 2 and list(peers) == list(range(peers[0], peers[-1] + 1)):
        return f"{peers[0]}–{peers[-1]}"
    return " ".join(map(str, peers))
