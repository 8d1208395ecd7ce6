# SPDX-License-Identifier: Apache-2.0
"""Pictures of our own as PNG: draws what `svg.Canvas` can say, for places that show no SVG.

The background is opaque, so that a picture can be read on light and on dark pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from xml.etree import ElementTree

from matplotlib import patches
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from matplotlib.patheffects import withStroke

_POINTS, _DPI = 72.0, 160  # a unit of a picture is a point
_HA = {"start": "left", "middle": "center", "end": "right"}
_NAMESPACE = "{http://www.w3.org/2000/svg}"
_NONE = "none"


def write_png(svg: str, path: Path) -> None:
    """Draw a picture in a file of its own (`svg.standalone`) as PNG."""
    root = ElementTree.fromstring(svg)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    figure = Figure(figsize=(width / _POINTS, height / _POINTS))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(left, left + width), ylim=(top + height, top))
    axes.axis("off")
    for place, element in enumerate(root):
        if draw := _SHAPES.get(name := element.tag.removeprefix(_NAMESPACE)):
            draw(axes, element.attrib, element.text or "", place)
        elif name not in ("title", "style"):
            raise ValueError(f"a picture has <{name}>, which cannot be drawn as PNG")
    figure.savefig(path, dpi=_DPI, format="png")


Attributes = Mapping[str, str]


def _numbers(of: Attributes, *names: str) -> list[float]:
    return [float(of[name]) for name in names]


def _stroke(of: Attributes) -> str | None:
    return None if of.get("stroke", _NONE) == _NONE else of["stroke"]


def _width(of: Attributes) -> float:
    return float(of.get("stroke-width", 1))


def _line(axes: Axes, of: Attributes, _: str, place: int) -> None:
    x1, y1, x2, y2 = _numbers(of, "x1", "y1", "x2", "y2")
    axes.plot([x1, x2], [y1, y2], color=of["stroke"], linewidth=_width(of), solid_capstyle="butt", zorder=place)


def _rect(axes: Axes, of: Attributes, _: str, place: int) -> None:
    x, y, width, height = _numbers(of, "x", "y", "width", "height")
    _add(axes, patches.Rectangle((x, y), width, height), of, place)


def _circle(axes: Axes, of: Attributes, _: str, place: int) -> None:
    x, y, radius = _numbers(of, "cx", "cy", "r")
    _add(axes, patches.Circle((x, y), radius), of, place)


def _path(axes: Axes, of: Attributes, _: str, place: int) -> None:
    numbers = [float(number) for number in re.findall(r"-?[\d.]+", of["d"])]
    points = list(zip(numbers[::2], numbers[1::2], strict=True))
    closed = of["d"].endswith("Z")
    outline = Outline([*points, points[0]] if closed else points, closed=closed)
    _add(axes, patches.PathPatch(outline), of, place)


def _add(axes: Axes, patch: patches.Patch, of: Attributes, place: int) -> None:
    is_filled = of.get("fill", _NONE) != _NONE
    dashes = [float(each) for each in of.get("stroke-dasharray", "").split()]
    patch.set(
        fill=is_filled,
        facecolor=of["fill"] if is_filled else _NONE,
        edgecolor=_stroke(of) or _NONE,
        linewidth=_width(of) if _stroke(of) else 0,
        linestyle=(0, dashes) if dashes else "solid",
        zorder=place,
    )
    if opacity := of.get("fill-opacity"):
        patch.set_alpha(float(opacity))
    axes.add_patch(patch)


def _text(axes: Axes, of: Attributes, words: str, place: int) -> None:
    x, y = _numbers(of, "x", "y")
    text = axes.text(
        x,
        y,
        words,
        color=of["fill"],
        fontsize=0.92 * float(of["font-size"]),  # its letters are wider than those that browsers take
        ha=_HA[of.get("text-anchor", "start")],
        va="baseline",
        fontweight="bold" if of.get("font-weight") else "normal",
        rotation=90 if of.get("transform", "").startswith("rotate(-90") else 0,
        parse_math=False,
        zorder=place,
    )
    if ring := _stroke(of):
        text.set_path_effects([withStroke(linewidth=_width(of), foreground=ring)])


_SHAPES: Mapping[str, Callable[[Axes, Attributes, str, int], None]] = {
    "line": _line,
    "rect": _rect,
    "circle": _circle,
    "path": _path,
    "text": _text,
}
