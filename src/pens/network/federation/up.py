# SPDX-License-Identifier: Apache-2.0
"""`pens up`: a federation of real peers on this machine, from its certificates to its table.

Everything is as between organisations: one process and one certificate per peer, and models over mutual TLS. This
process only watches. It starts no peer a second time: to see a peer come back, kill it and start it again with
`pens peer DIR/peer-3/config.toml`.

The command ends when no peer is left: a peer ends by itself once all members that it knows have finished. Their records
on disk are then put together, including those of peers that exited uncleanly.
"""

from __future__ import annotations

import shlex
import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from pens.errors import Interrupted
from pens.methods.names import find_method
from pens.network.federation.loopback import LocalFederation, num_cores, usual_waits
from pens.network.federation.peer_processes import PeerProcesses, Presence, Sighting
from pens.report.tables import narrow_table
from pens.report.words import duration
from pens.tasks.task import task_of

_COLUMNS = ("peer", "state", "step", "neighbours", "valid.\n%", "last\nupdate", "models\nin / out", "MB\nin / out")
_STYLES: dict[Presence, str] = {"dead": "red", "ended": "dim"}
_LOOK_EVERY_S = 1.0
_LINE_EVERY_S = 15.0
_STARTING_S = 2.5  # of one core, for each peer


class Watch:
    """Shows how the peers are doing, in a live table or in lines now and then; notes signals that ask for a stop."""

    def __init__(self, federation: LocalFederation, console: Console) -> None:
        self._federation, self._console = federation, console
        self._begun = time.monotonic()
        self._last_line = -_LINE_EVERY_S
        self._gone: set[str] = set()
        self.estimate_s = estimate_s(federation)
        self.signals = 0
        self.woken = threading.Event()

    @contextmanager
    def watching(self) -> Iterator[Live | None]:
        """While the block lasts, show the table, and take signals as requests to stop."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        shown = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else nullcontext()
        try:
            with shown as live:
                yield live
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signals += 1
        self.woken.set()
        if self.signals > 1:
            raise KeyboardInterrupt

    def show(self, live: Live | None, sightings: Sequence[Sighting]) -> None:
        """Update the live table, or print what is new."""
        if live:
            live.update(self._table(sightings), refresh=True)
            return
        for seen in sightings:
            if seen.presence == "dead" and seen.name not in self._gone:
                self._console.print(f"{seen.name}: {seen.end}; {seen.exit_message}", markup=False, soft_wrap=True)
        self._gone = {seen.name for seen in sightings if seen.presence == "dead"}
        if self.elapsed_s - self._last_line >= _LINE_EVERY_S:
            self._last_line = self.elapsed_s
            self._console.print(self._line(sightings), markup=False, soft_wrap=True)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._begun

    def _line(self, sightings: Sequence[Sighting]) -> str:
        states = Counter(_state(seen) for seen in sightings)
        steps = [int(seen.health["step"]) for seen in sightings if seen.health]
        measure = task_of(self._federation.settings).measure
        scores = [seen.health[measure.key("val_accuracy")] for seen in sightings if seen.health]
        known = [score for score in scores if score is not None]
        words = [", ".join(f"{count} {state}" for state, count in states.items())]
        if steps:
            words.append(f"step {min(steps)} to {max(steps)} of {num_steps(self._federation)}")
        if known:
            words.append(f"validation {measure.name} {measure.words(statistics.mean(known))}")
        return f"{duration(self.elapsed_s)}: {'; '.join(words)}"

    def _table(self, sightings: Sequence[Sighting]) -> RenderableType:
        f = self._federation
        title = f"{f.settings.data.source}: {len(f.members)} real peers, {f.method}, seed {f.seed}; "
        title += f"{duration(self.elapsed_s)}, of about {duration(self.estimate_s)}"
        rows = [_cells(seen, f) for seen in sightings]
        measure = task_of(f.settings).measure
        columns = [f"valid.\n{measure.unit or measure.name}" if name == "valid.\n%" else name for name in _COLUMNS]
        table = narrow_table(
            dict(zip(columns, zip(*rows, strict=True), strict=True)),
            escape(title),
            self._console.width,
            first_to_go=columns[:4:-1],
            words=("peer", "state", "neighbours"),
            styles=[_STYLES.get(seen.presence, "") for seen in sightings],
        )
        words = [self._exit_message(seen) for seen in sightings if seen.presence == "dead"]
        ending = "stopping …" if self.signals else "Ctrl-C stops all"
        return Group(table, *words, Text(f"{ending}; files: {f.folder}", "dim"))

    def _exit_message(self, seen: Sighting) -> Text:
        config = next(member.config for member in self._federation.members if member.name == seen.name)
        again = f"start it again with: pens peer {shlex.quote(str(config))}"
        return Text.assemble(
            (f"{seen.name}: {seen.end}; {again}\n", "red"), (f"  last line: {seen.exit_message}", "dim")
        )


def _state(seen: Sighting) -> str:
    if seen.presence != "there" or not seen.health:
        return seen.presence
    return "done" if seen.health.get("done") else str(seen.health["phase"])


def _cells(seen: Sighting, federation: LocalFederation) -> list[str]:
    health = seen.health
    if not health:
        return [seen.name, _state(seen), *[""] * (len(_COLUMNS) - 2)]
    measure = task_of(federation.settings).measure
    score, age = health[measure.key("val_accuracy")], health["seconds_since_update"]
    step = str(health["step"]) if health["done"] else f"{health['step']}/{num_steps(federation)}"
    models, sizes = health["models"], health["bytes"]
    return [
        seen.name,
        _state(seen),
        step,
        _neighbours(health["neighbours"], len(federation.members) - 1),
        "" if score is None else measure.number(score),
        "" if age is None or seen.presence != "there" else duration(age),
        f"{models['in']:,} / {models['out']:,}",
        f"{sizes['in'] / 1e6:.1f} / {sizes['out'] / 1e6:.1f}",
    ]


def _neighbours(names: Sequence[str], others: int) -> str:
    """The numbers of a peer's neighbours where they are few, as in `1 2 3`; otherwise how many."""
    if not names:
        return ""
    if len(names) == others:
        return "all"
    numbers = sorted(name.removeprefix("peer-") for name in names)
    return " ".join(numbers) if len(numbers) <= 8 else str(len(numbers))


def num_steps(federation: LocalFederation) -> int:
    """The updates of a peer that does not stop early: first training, step 1 and step 2."""
    searching = federation.settings.pens.step1_rounds if find_method(federation.method).selects else 0
    return 1 + searching + federation.settings.gossip.rounds


def estimate_s(federation: LocalFederation) -> float:
    """The estimated duration, if computing keeps up with the models that come, and no peer stops early."""
    starting = _STARTING_S * len(federation.members) / num_cores()
    return starting + federation.settings.timing.interval * usual_waits(federation.settings, federation.method)


def estimate_words(federation: LocalFederation) -> str:
    """One line that tells what is about to run, and about how long it takes."""
    settings = federation.settings
    return (
        f"{len(federation.members)} real peers, {federation.method}, seed {federation.seed}: each sends a model every "
        f"{settings.timing.interval:g} s; about {duration(estimate_s(federation))} on {num_cores()} cores"
    )


def run_federation(federation: LocalFederation, console: Console) -> list[Sighting]:
    """Run all peers until none is left; return those that exited uncleanly. `Interrupted` if a signal came."""
    processes, watch = PeerProcesses(federation.members), Watch(federation, console)
    with watch.watching() as live:
        try:
            processes.start()
            sightings = processes.look()
            watch.show(live, sightings)
            while not _over(sightings) and not watch.signals:
                watch.woken.wait(_LOOK_EVERY_S)
                sightings = processes.look()
                watch.show(live, sightings)
        finally:
            processes.stop()
    if watch.signals:
        raise Interrupted("stopped")
    return [seen for seen in sightings if seen.presence == "dead"]


def _over(sightings: Sequence[Sighting]) -> bool:
    """Whether no peer is left, or one could not start, so that the others would wait for it."""
    gone = all(seen.presence in ("ended", "dead") for seen in sightings)
    return gone or any(seen.presence == "dead" and not seen.health and (seen.exit_code or 0) > 0 for seen in sightings)
