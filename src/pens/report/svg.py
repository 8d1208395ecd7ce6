# SPDX-License-Identifier: Apache-2.0
"""A small drawing vocabulary: a canvas that becomes SVG text, scales with round ticks, and one palette.

All panels are 340 units wide and are shown 300 to 460 pixels wide, so that text of 12 units stays legible on a phone.
Colours are written as CSS variables, which the page sets for light, dark and print. A picture in a file of its own has
the light colours instead, because few programs other than browsers support variables. It also has a background, so that
it can be read on any page, and a style by which browsers exchange each colour for its dark form where the reader
prefers dark pages.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from xml.sax.saxutils import escape, quoteattr

from pens.methods.names import method_of
from pens.settings.tree import MethodName

WIDTH = 340
LIGHT = {
    "ink": "#1b1f24",
    "soft": "#5c6670",
    "grid": "#dfe3e8",
    "paper": "#ffffff",
    "rule": "#fff",
}
DARK = {
    "ink": "#e8eaed",
    "soft": "#a3adb8",
    "grid": "#343b44",
    "paper": "#14171b",
    "rule": "#fff",
}
"""The dark form of all colours other than those of methods. Methods have Okabe and Ito's colours, which colour-blind
readers can tell apart, darkened or lightened until text in them is legible."""


def palette(methods: Iterable[MethodName]) -> tuple[dict[str, str], dict[str, str]]:
    """All colours of a picture of these methods, by the names of `colour`: on a light page, and on a dark page."""
    own = {_variable(name): method_of(name).colours for name in methods}
    own = {name: colours for name, colours in own.items() if name not in LIGHT}
    light, dark = ({name: colours[place] for name, colours in own.items()} for place in (0, 1))
    return {**LIGHT, **light}, {**DARK, **dark}


def colour(name: str) -> str:
    """A colour of the palette, or of a method, as a CSS variable of the page."""
    return f"var(--{_variable(name)})"


def _variable(name: str) -> str:
    return name.replace("+", "-plus")


MARGIN = 14
"""The margin around a picture in a file of its own, within its background."""


def standalone(svg: str, methods: Iterable[MethodName]) -> str:
    """A panel as a file of its own. `methods`: the methods whose colours the panel may have."""
    used = {*re.findall(r"var\(--([\w-]+)\)", svg), "paper"}
    light, dark = ({name: value for name, value in each.items() if name in used} for each in palette(methods))
    left, top, width, height = map(float, _VIEW_BOX.search(svg)[1].split())  # type: ignore[index]
    box = " ".join(map(_n, (left - MARGIN, top - MARGIN, width + 2 * MARGIN, height + 2 * MARGIN)))
    begin = svg.index("</title>") + len("</title>")
    ground = (
        f'\n<style>{_dark_style(light, dark)}</style>\n<rect x="{_n(left - MARGIN)}" y="{_n(top - MARGIN)}" '
        f'width="{_n(width + 2 * MARGIN)}" height="{_n(height + 2 * MARGIN)}" fill="{colour("paper")}"/>'
    )
    whole = _VIEW_BOX.sub(f'viewBox="{box}"', svg[:begin], count=1) + ground + svg[begin:]
    return re.sub(r"var\(--([\w-]+)\)", lambda match: light[match[1]], whole) + "\n"


_VIEW_BOX = re.compile(r'viewBox="([^"]*)"')


def _dark_style(light: Mapping[str, str], dark: Mapping[str, str]) -> str:
    """A style that exchanges each light colour, identified by its attribute, for the dark one. No two names share a
    light colour."""
    rules = [
        f'[{what}="{value}"]{{{what}:{dark[name]}}}'
        for name, value in light.items()
        for what in ("fill", "stroke")
        if dark[name] != value
    ]
    return f"@media (prefers-color-scheme:dark){{{''.join(rules)}}}"


@dataclass
class Canvas:
    """Shapes in the order in which they were drawn."""

    title: str
    """A description of the picture for screen readers."""
    height: float
    width: float = WIDTH
    _shapes: list[str] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, stroke: str = "grid", width: float = 1.0) -> None:
        self._shapes.append(
            f'<line x1="{_n(x1)}" y1="{_n(y1)}" x2="{_n(x2)}" y2="{_n(y2)}" '
            f'stroke="{colour(stroke)}" stroke-width="{_n(width)}"/>'
        )

    def path(self, points: list[tuple[float, float]], stroke: str, width: float = 2.0, dash: str = "") -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._shapes.append(
            f'<path d="{_path(points)}" fill="none" stroke="{colour(stroke)}" stroke-width="{_n(width)}" '
            f'stroke-linejoin="round"{dashes}/>'
        )

    def area(self, points: list[tuple[float, float]], fill: str, opacity: float = 0.16) -> None:
        self._shapes.append(f'<path d="{_path(points)}Z" fill="{colour(fill)}" fill-opacity="{_n(opacity)}"/>')

    def rect(self, x: float, y: float, width: float, height: float, fill: str, opacity: float = 1.0) -> None:
        self._shapes.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
            f'fill="{colour(fill)}" fill-opacity="{_n(opacity)}"/>'
        )

    def dot(self, x: float, y: float, fill: str, radius: float = 4.5) -> None:
        self._shapes.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(radius)}" fill="{colour(fill)}"/>')

    def diamond(self, x: float, y: float, stroke: str, size: float = 5.0) -> None:
        corners = [(x - size, y), (x, y - size), (x + size, y), (x, y + size)]
        self._shapes.append(
            f'<path d="{_path(corners)}Z" fill="{colour("paper")}" stroke="{colour(stroke)}" stroke-width="1.5"/>'
        )

    def square(self, x: float, y: float, stroke: str, size: float = 4.0) -> None:
        self._shapes.append(
            f'<rect x="{_n(x - size)}" y="{_n(y - size)}" width="{_n(2 * size)}" height="{_n(2 * size)}" '
            f'fill="{colour("paper")}" stroke="{colour(stroke)}" stroke-width="1.5"/>'
        )

    def text(
        self, x: float, y: float, words: str, fill: str = "ink", anchor: str = "start", size: float = 12.0,
        bold: bool = False, turned: bool = False, halo: bool = False,
    ) -> None:  # fmt: skip
        weight = ' font-weight="600"' if bold else ""
        ring = f' stroke="{colour("paper")}" stroke-width="4" paint-order="stroke"' if halo else ""
        turn = f' transform="rotate(-90 {_n(x)} {_n(y)})"' if turned else ""
        self._shapes.append(
            f'<text x="{_n(x)}" y="{_n(y)}" fill="{colour(fill)}" text-anchor="{anchor}" font-size="{_n(size)}"'
            f"{weight}{ring}{turn}>{escape(words)}</text>"
        )

    def image(self, x: float, y: float, width: float, height: float, png_base64: str) -> None:
        self._shapes.append(
            f'<image x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" preserveAspectRatio="none" '
            f'style="image-rendering:pixelated" href="data:image/png;base64,{png_base64}"/>'
        )

    def svg(self) -> str:
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(self.width)} {_n(self.height)}" role="img" '
            f'aria-label={quoteattr(self.title)} font-family="system-ui, sans-serif">\n'
            f"<title>{escape(self.title)}</title>\n" + "\n".join(self._shapes) + "\n</svg>"
        )


@dataclass(frozen=True)
class Scale:
    """A linear map from values to places on the canvas."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values within the scale, in steps of 1, 2 or 5 times a power of ten."""
        step = _round_step((self.high - self.low) / about)
        first = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first
        return [(first + i) * step for i in range(count + 1)]


def scale_over(low: float, high: float, start: float, end: float, about: int = 5) -> Scale:
    """A scale that reaches from a round value below `low` to one above `high`."""
    if high <= low:
        low, high = low - 0.5, high + 0.5
    step = _round_step((high - low) / about)
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, start, end)


def tick_label(value: float) -> str:
    """A value as the label of a tick: 0.25, 20, 87.5, 1,500"""
    text = f"{value:,.0f}" if math.isclose(value, round(value), abs_tol=1e-9) else f"{value:g}"
    return text.replace("-", "−")


def spread(places: list[float], gap: float) -> list[float]:
    """Move places to be at least `gap` apart, and keep their order and their mean."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for above, below in pairwise(order):
        moved[below] = max(moved[below], moved[above] + gap)
    if order:
        drift = sum(moved[i] - places[i] for i in order) / len(order)
        moved = [place - drift for place in moved]
    return moved


def _round_step(raw: float) -> float:
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))


def _path(points: list[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def _n(value: float) -> str:
    """A coordinate as text, to a hundredth."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
