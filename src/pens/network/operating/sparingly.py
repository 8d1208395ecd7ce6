# SPDX-License-Identifier: Apache-2.0
"""How much of a log is written, whatever others cause: bounds on lines and bytes per minute.

Of records that differ in numbers alone, a bounded number per minute is written, and the next one tells how many were
left out. A caller can choose words, too, so the records that one line of code makes have bounds together, and so have
those about one member.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pens.network.transport.limits import Limits

LONGEST_EVENT, LONGEST_FIELD = 8192, 1000  # characters that are written of a message, and of each text in its fields
_KINDS = 1000  # of records that are told apart; the oldest are forgotten
_FRAME_BYTES = 100  # time, level and logger
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that a record was given as `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class Sparingly(logging.Filter):
    """Lets a bounded number of records and bytes per minute pass: of one kind, of one line of code, of one member.

    Records that differ in numbers alone are of one kind. Those with a field `member` are of that member."""

    def __init__(self, per_minute: int = 6, per_line: int = 60, limits: Limits | None = None) -> None:
        """`per_minute`: records of one kind; `per_line`: records made by one line of code."""
        super().__init__()
        limits = limits or Limits()
        self._of_kind = _Most(per_minute, limits.log_bytes_per_minute)
        self._of_line = _Most(per_line, limits.log_bytes_per_minute)
        self._of_member = _Most(limits.log_lines_of_member, limits.log_bytes_of_member)
        self._kinds: OrderedDict[tuple[Any, ...], _Minute] = OrderedDict()
        self._lines: OrderedDict[tuple[Any, ...], _Minute] = OrderedDict()
        self._members: OrderedDict[tuple[Any, ...], _Minute] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        now, size = record.created, _size(record)
        words = re.sub(r"\d+", "0", record.getMessage()[:400])[:200]
        kind = _minute(self._kinds, now, record.name, record.levelno, words)
        minutes = {_minute(self._lines, now, record.pathname, record.lineno): self._of_line, kind: self._of_kind}
        if member := getattr(record, "member", None):
            minutes[_minute(self._members, now, str(member)[:80])] = self._of_member
        if any(minute.is_full(now, size, most) for minute, most in minutes.items()):
            kind.left_out += 1
            return False
        if kind.left_out:
            record.left_out, kind.left_out = kind.left_out, 0
        for minute in minutes:
            minute.lines, minute.size = minute.lines + 1, minute.size + size
        return True


@dataclass(frozen=True)
class _Most:
    """A bound on what is written in a minute."""

    lines: int
    size: int


@dataclass(eq=False)
class _Minute:
    """How many records, and bytes of them, were written and left out in the current minute."""

    begun: float
    lines: int = 0
    size: int = 0
    left_out: int = 0

    def is_full(self, now: float, size: int, most: _Most) -> bool:
        """Whether no more may be written; the first always may. A clock that is set back begins a new minute, too."""
        if not self.begun <= now < self.begun + 60:
            self.begun, self.lines, self.size = now, 0, 0
        return self.lines >= most.lines or (self.lines > 0 and self.size + size > most.size)


def _minute(kept: OrderedDict[tuple[Any, ...], _Minute], now: float, *key: object) -> _Minute:
    """The minute of this key; the keys that were used longest ago are forgotten."""
    minute = kept.setdefault(key, _Minute(now))
    kept.move_to_end(key)
    if len(kept) > _KINDS:
        kept.popitem(last=False)
    return minute


def _size(record: logging.LogRecord) -> int:
    """About how many bytes a record takes when it is written."""
    values = (str(value)[:LONGEST_FIELD] for value in fields_of(record).values())
    return _FRAME_BYTES + sum(len(text) + 20 for text in (record.getMessage()[:LONGEST_EVENT], *values))
