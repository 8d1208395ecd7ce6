"""The pictures of a report. Each is a panel of SVG and the table of numbers that it shows."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.image import imsave

from pens.config import Method
from pens.data.samples import Array
from pens.metrics import Interval
from pens.report.analysis import Cost, Difference, PeerOutcome
from pens.report.course import Axis, Curve, MergeMap, Selecting
from pens.report.paper import Cell
from pens.report.svg import WIDTH, Canvas, Scale, scale_over, spread, tick_label
from pens.results import Summary

Row = tuple[str | float | int | None, ...]


@dataclass(frozen=True)
class Chart:
    """One panel, and its numbers as a table."""

    name: str
    """Of its files."""
    caption: str
    svg: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


# --- accuracy per method ----------------------------------------------------------------------------------------------


def accuracy_chart(table: Sequence[Summary], paper: dict[Method, Cell]) -> Chart:
    """Mean and interval of each method, with the paper's below where it has one."""
    cells = {row.method: [(row.accuracy, False)] for row in table}
    for method, cell in paper.items():
        cells[method].append((cell.value, True))
    ends = [end for values in cells.values() for value, _ in values for end in _ends(value)]
    step = 22.0
    height = 40 + sum(step * len(c) + 10 for c in cells.values())
    canvas = Canvas("Test accuracy of each method with its 95 % interval", height)
    x = scale_over(min(ends), max(ends), 62, 252, about=4)
    _vertical_grid(canvas, x, 4, height - 34, "test accuracy, %")
    top = 8.0
    for method, values in cells.items():
        canvas.text(0, top + 14, method, method, bold=True)
        for value, of_paper in values:
            _interval_mark(canvas, x, top + 10, value, method, of_paper)
            canvas.text(WIDTH, top + 14, value.percent(), "soft" if of_paper else "ink", "end", bold=not of_paper)
            if of_paper:
                canvas.text(0, top + 14, "paper", "soft")
            top += step
        top += 10
    rows: list[Row] = [(row.method, "runs", row.seeds, row.accuracy.mean, row.accuracy.half_width) for row in table]
    rows += [(m, f"paper, {c.where}", 4, c.value.mean, c.value.half_width) for m, c in paper.items()]
    columns = ("method", "source", "seeds", "accuracy", "half_width_95")
    caption = "Dot: mean over peers and seeds. Bar: 95 % interval over seeds (Student t)."
    caption += " Diamond: the paper." if paper else ""
    return Chart("accuracy", caption, canvas.svg(), columns, tuple(rows))


def _interval_mark(canvas: Canvas, x: Scale, y: float, value: Interval, colour: str, hollow: bool) -> None:
    low, high = _ends(value)
    canvas.line(x(low), y, x(high), y, colour, 2)
    (canvas.diamond if hollow else canvas.dot)(x(100 * value.mean), y, colour)


def _ends(value: Interval) -> tuple[float, float]:
    """Of an interval of accuracies, in per cent; with few seeds it may reach beyond what is possible."""
    half = value.half_width or 0
    return max(0.0, 100 * (value.mean - half)), min(100.0, 100 * (value.mean + half))


# --- learning curves --------------------------------------------------------------------------------------------------

AXIS_TITLES: dict[Axis, str] = {
    "rounds": "rounds (updates of a peer after its first training)",
    "time": "virtual time",
    "bytes": "received by a peer, MB",
    "forwards": "work of a peer, thousand forward passes",
}
AXIS_COLUMNS: dict[Axis, str] = {
    "rounds": "rounds",
    "time": "virtual_time",
    "bytes": "megabytes_received",
    "forwards": "thousand_forward_passes",
}
AXIS_UNITS: dict[Axis, float] = {"rounds": 1, "time": 1, "bytes": 1e6, "forwards": 1e3}


def curves_chart(curves: Sequence[Curve], still: dict[Method, float], axis: Axis) -> Chart:
    """Validation accuracy along an axis. `still`: the final value of methods that do not move along it."""
    height, bottom, right = 256.0, 212.0, 280.0
    unit = AXIS_UNITS[axis]
    canvas = Canvas(f"Validation accuracy over {AXIS_TITLES[axis]}", height)
    lows = [100 * float(c.low.min()) for c in curves] + [100 * v for v in still.values()]
    highs = [100 * float(c.high.max()) for c in curves] + [100 * v for v in still.values()]
    y = scale_over(max(0.0, min(lows)), max(highs), bottom, 30)
    x = Scale(0, max(float(c.at[-1]) for c in curves) / unit, 34, right)
    _axes(canvas, x, y, AXIS_TITLES[axis], "validation accuracy, %")
    for curve in curves:
        at = curve.at / unit
        canvas.area(_points(x, y, at, curve.high) + _points(x, y, at, curve.low)[::-1], curve.method)
    for curve in curves:
        canvas.path(_points(x, y, curve.at / unit, curve.mean), curve.method)
    for method, value in still.items():
        canvas.path([(x(0), y(100 * value)), (right, y(100 * value))], method, 1.5, "4 4")
    ends = {c.method: y(100 * float(c.mean[-1])) for c in curves} | {m: y(100 * v) for m, v in still.items()}
    for (method, _), place in zip(ends.items(), spread(list(ends.values()), 14), strict=True):
        canvas.text(right + 6, place + 4, method, method, bold=True)
    rows: list[Row] = [
        (c.method, float(at) / unit, float(m), float(lo), float(hi))
        for c in curves
        for at, m, lo, hi in zip(c.at, c.mean, c.low, c.high, strict=True)
    ]
    rows += [(method, None, value, None, None) for method, value in still.items()]
    columns = (
        "method",
        AXIS_TITLES[axis].split(" (")[0].replace(", ", " in ").replace(" ", "_"),
        "mean",
        "low",
        "high",
    )
    caption = "Line: mean over peers and seeds. Band: the middle half of them."
    caption += " Dashed: the last value of a method that receives nothing." if still else ""
    return Chart(f"curves-{axis}", caption, canvas.svg(), columns, tuple(rows))


# --- who merged whom --------------------------------------------------------------------------------------------------


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
            canvas.line(left + edge, top, left + edge, top + side, "paper", 1.5)
            canvas.line(left, top + edge, left + side, top + edge, "paper", 1.5)
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


# --- neighbours over step 1 -------------------------------------------------------------------------------------------


def neighbours_chart(found: Sequence[Selecting], paper: tuple[Cell, Cell] | None) -> Chart:
    """Precision and recall had step 1 ended earlier: mean over seeds, and their range."""
    rounds = max((s.rounds for s in found), key=len)
    lines = {
        "precision": np.stack([_held(s.precision, len(rounds)) for s in found]),  # [seed, round]
        "recall": np.stack([_held(s.recall, len(rounds)) for s in found]),
    }
    canvas, right = Canvas("Precision and recall of the neighbours over the rounds of step 1", 256), 268.0
    y = scale_over(100 * min(float(np.nanmin(each)) for each in lines.values()), 100, 212, 30)
    x = Scale(0, float(rounds[-1]), 34, right)
    _axes(canvas, x, y, "rounds of step 1", "%")
    rows: list[Row] = []
    for (name, each), dash in zip(lines.items(), ("", "5 3"), strict=True):
        mean, low, high = each.mean(0), each.min(0), each.max(0)
        if len(found) > 1:
            canvas.area(_points(x, y, rounds, high) + _points(x, y, rounds, low)[::-1], "pens")
        canvas.path(_points(x, y, rounds, mean), "pens", dash=dash)
        numbers = zip(rounds.tolist(), mean.tolist(), low.tolist(), high.tolist(), strict=True)
        rows += [(name, *numbers_of_round) for numbers_of_round in numbers]
    for cell in paper or ():
        canvas.diamond(x(float(rounds[-1])), y(100 * cell.value.mean), "soft")
    ends = [y(100 * float(each.mean(0)[-1])) for each in lines.values()]
    for name, place in zip(lines, spread(ends, 14), strict=True):
        canvas.text(right + 8, place + 4, name, "pens", bold=True)
    caption = "Line: mean over seeds. Band: their range." if len(found) > 1 else "One seed."
    caption += " Diamonds: the paper's table 5, at the end of its step 1." if paper else ""
    return Chart("neighbours", caption, canvas.svg(), ("measure", "round", "mean", "lowest", "highest"), tuple(rows))


def _held(values: Array, length: int) -> Array:
    """The last value holds."""
    return np.concatenate([values, np.repeat(values[-1:], length - len(values))])


# --- peers ------------------------------------------------------------------------------------------------------------


def peers_chart(outcomes: Sequence[PeerOutcome]) -> Chart:
    """How accuracy is distributed over peers, per method."""
    rows = tuple((o.method, o.seed, o.peer, o.kind, o.accuracy, o.gain) for o in outcomes)
    by_method = _grouped(outcomes, lambda o: o.accuracy)
    svg = _histograms("Accuracy of the peers", "test accuracy of a peer, %", by_method, zero=False)
    caption = "Each row: how many peers (of all seeds) reached which accuracy. Line: mean. Triangle: the worst peer."
    columns = ("method", "seed", "peer", "kind", "accuracy", "gain_over_local")
    return Chart("peers", caption, svg, columns, rows)


def gains_chart(outcomes: Sequence[PeerOutcome]) -> Chart:
    """What each peer gained over training alone, per method."""
    paired = [o for o in outcomes if o.gain is not None and o.method != "local"]
    rows = tuple((o.method, o.seed, o.peer, o.kind, o.accuracy, o.gain) for o in paired)
    by_method = _grouped(paired, lambda o: o.gain or 0.0)
    svg = _histograms("What each peer gained over training alone", "points over training alone", by_method, zero=True)
    caption = "Each row: how many peers gained how many points over local with the same seed; left of zero they lost."
    columns = ("method", "seed", "peer", "kind", "accuracy", "gain_over_local")
    return Chart("gains", caption, svg, columns, rows)


def _grouped(outcomes: Sequence[PeerOutcome], value: Callable[[PeerOutcome], float]) -> dict[Method, Array]:
    methods = dict.fromkeys(o.method for o in outcomes)
    return {method: 100 * np.array([value(o) for o in outcomes if o.method == method]) for method in methods}


def _histograms(title: str, axis: str, by_method: dict[Method, Array], zero: bool) -> str:
    row, left, right = 52.0, 62.0, WIDTH - 10.0
    height = row * len(by_method) + 44
    canvas = Canvas(title, height)
    every = np.concatenate(list(by_method.values()))
    low, high = float(every.min()), float(every.max())
    x = scale_over(min(low, 0.0) if zero else low, max(high, 0.0) if zero else high, left, right)
    _vertical_grid(canvas, x, 4, height - 34, axis)
    edges = np.linspace(x.low, x.high, 41)
    counts = {method: np.histogram(values, edges)[0] for method, values in by_method.items()}
    shares = {method: counts[method] / len(values) for method, values in by_method.items()}
    tallest = max(float(share.max()) for share in shares.values())
    for number, (method, values) in enumerate(by_method.items()):
        floor = row * (number + 1)
        canvas.text(0, floor - 12, method, method, bold=True)
        canvas.line(left, floor, right, floor, "grid")
        for begin, end, share in zip(edges, edges[1:], shares[method], strict=False):
            if share:
                tall = (row - 12) * float(share) / tallest
                canvas.rect(x(begin) + 0.4, floor - tall, x(end) - x(begin) - 0.8, tall, method, 0.75)
        mean, worst = x(float(values.mean())), x(float(values.min()))
        canvas.line(mean, floor - row + 10, mean, floor, "ink", 1.5)
        canvas.area([(worst - 4, floor + 7), (worst + 4, floor + 7), (worst, floor + 1)], "ink", 1)
    if zero:
        canvas.line(x(0), 4, x(0), height - 34, "ink", 1)
    return canvas.svg()


# --- costs ------------------------------------------------------------------------------------------------------------


def bytes_chart(costs: Sequence[Cost]) -> Chart:
    """What a peer receives, and what becomes of it."""
    per_model = {c.method: c.bytes_received / c.received / 1e6 if c.received else 0.0 for c in costs}
    parts = {c.method: [per_model[c.method] * n for n in (c.merged, max(0.0, c.received - c.merged))] for c in costs}
    svg = _bars("Megabytes received per peer", "received per peer, MB", parts, ("merged", "not merged"))
    rows = tuple((c.method, c.received, c.merged, c.scored, c.refused, c.bytes_received) for c in costs)
    columns = ("method", "models_received", "models_merged", "models_scored", "models_refused", "bytes_received")
    return Chart("bytes", "Strong: merged. Pale: scored only, refused or unused.", svg, columns, rows)


def work_chart(costs: Sequence[Cost]) -> Chart:
    """What a peer computes."""
    known = [c for c in costs if c.forwards is not None]
    parts = {c.method: [(p or 0.0) / 1e3 for p in (c.training, c.validation, c.scoring)] for c in known}
    names = ("training", "validation", "scoring")
    svg = _bars("Work per peer", "thousand forward passes per peer", parts, names)
    rows = tuple((c.method, c.training, c.validation, c.scoring, c.forwards, c.seconds) for c in known)
    columns = ("method", "training", "validation", "scoring", "forward_passes", "seconds_per_seed")
    caption = "From strong to pale: training (three forward passes a sample), validation, scoring of others' models."
    return Chart("work", caption, svg, columns, rows)


def _bars(title: str, axis: str, parts: dict[Method, list[float]], names: Sequence[str]) -> str:
    row, left, right = 34.0, 62.0, 282.0
    height = row * len(parts) + 46
    canvas = Canvas(title, height)
    x = scale_over(0, max(max(sum(p) for p in parts.values()), 1e-9), left, right, about=4)
    _vertical_grid(canvas, x, 4, height - 34, axis)
    shades = (1.0, 0.35) if len(names) == 2 else (1.0, 0.62, 0.3)
    for number, (method, amounts) in enumerate(parts.items()):
        top, begin = row * number + 10, 0.0
        canvas.text(0, top + 14, method, method, bold=True)
        for amount, shade in zip(amounts, shades, strict=True):
            canvas.rect(x(begin), top, x(begin + amount) - x(begin), 18, "paper")  # no grid behind pale colours
            canvas.rect(x(begin), top, x(begin + amount) - x(begin), 18, method, shade)
            begin += amount
        canvas.text(x(begin) + 5, top + 14, _short(begin))
    return canvas.svg()


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 or not value else f"{value:.2g}"


# --- differences ------------------------------------------------------------------------------------------------------


def differences_chart(found: Sequence[Difference]) -> Chart:
    """Paired differences with their intervals."""
    row, left, right = 40.0, 10.0, WIDTH - 10.0
    height = row * len(found) + 44
    canvas = Canvas("Differences between methods with their 95 % intervals", height)
    ends = [100 * (d.mean.mean + s * (d.mean.half_width or 0)) for d in found for s in (-1, 1)]
    x = scale_over(min(0.0, *ends), max(0.0, *ends), left, right)
    _vertical_grid(canvas, x, 4, height - 34, "points of accuracy")
    canvas.line(x(0), 4, x(0), height - 34, "ink", 1)
    for number, d in enumerate(found):
        top = row * number
        canvas.text(left, top + 17, f"{d.better} − {d.other}", bold=True, halo=True)
        canvas.text(right, top + 17, points(d.mean), "ink", "end", halo=True)
        colour = d.better if d.is_clear else "soft"
        if d.mean.half_width:
            ends_of_bar = (x(100 * (d.mean.mean + s * d.mean.half_width)) for s in (-1, 1))
            begin, end = ends_of_bar
            canvas.line(begin, top + 29, end, top + 29, colour, 2)
        canvas.dot(x(100 * d.mean.mean), top + 29, colour)
    rows = tuple(
        (d.better, d.other, len(d.seeds), d.mean.mean, d.mean.half_width, d.p_t, d.p_holm, d.p_wilcoxon) for d in found
    )
    columns = ("better", "other", "seeds", "difference", "half_width_95", "p_paired_t", "p_holm", "p_wilcoxon")
    caption = "Dot: mean of the seeds' differences. Bar: 95 % interval. Grey: the interval does not leave out zero."
    return Chart("differences", caption, canvas.svg(), columns, rows)


def points(value: Interval) -> str:
    """+7.0 ± 1.9"""
    half = "" if value.half_width is None else f" ± {100 * value.half_width:.1f}"
    return f"{100 * value.mean:+.1f}{half}".replace("-", "−")


# --- shared -----------------------------------------------------------------------------------------------------------


def _axes(canvas: Canvas, x: Scale, y: Scale, x_title: str, y_title: str) -> None:
    for tick in y.ticks():
        canvas.line(x.start, y(tick), x.end, y(tick))
        canvas.text(x.start - 6, y(tick) + 4, tick_label(tick), "soft", "end")
    for tick in x.ticks(4):
        canvas.text(x(tick), y.start + 18, tick_label(tick), "soft", "middle")
    canvas.text(0, 10, y_title, "soft")
    canvas.text((x.start + x.end) / 2, y.start + 38, x_title, "soft", "middle")


def _points(x: Scale, y: Scale, at: Array, fractions: Array) -> list[tuple[float, float]]:
    """Where fractions, drawn in per cent, stand; what is not a number is left out."""
    return [(x(float(a)), y(100 * float(v))) for a, v in zip(at, fractions, strict=True) if not np.isnan(v)]


def _vertical_grid(canvas: Canvas, x: Scale, top: float, bottom: float, title: str) -> None:
    for tick in x.ticks():
        canvas.line(x(tick), top, x(tick), bottom)
        canvas.text(x(tick), bottom + 15, tick_label(tick), "soft", "middle")
    canvas.text((x.start + x.end) / 2, bottom + 31, title, "soft", "middle")
