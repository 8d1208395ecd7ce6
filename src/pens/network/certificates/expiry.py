# SPDX-License-Identifier: Apache-2.0
"""What ends when: a member's certificate, its authorities and their lists; and when a person is warned of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

WARN_DAYS = (30, 14, 7, 3, 1)
_DAY = timedelta(days=1)

_REMEDIES = {
    "certificate": "`pens certs request` here, `pens certs sign` at the authority, `pens certs install` here: "
    "no restart is needed",
    "authority": "`pens certs rotate` at the authority, while all members' certificates are still valid",
    "revocation list": "`pens certs refresh` at the authority, and give revoked.pem to any one member: the others get "
    "it from that one",
}


@dataclass(frozen=True, slots=True)
class Term:
    """Something that is valid from one moment to another."""

    kind: Literal["certificate", "authority", "revocation list"]
    of: str
    """Whose it is."""
    begins: datetime
    ends: datetime

    @property
    def remedy(self) -> str:
        """What a person should do before it ends."""
        return _REMEDIES[self.kind]

    def left(self, now: datetime) -> timedelta:
        """How long it is still valid; negative once it has ended."""
        return self.ends - now

    def is_ending(self, now: datetime, days: float) -> bool:
        """Whether it ends within so many days. What is valid for a short time has its last third for that."""
        return self.left(now) <= min(timedelta(days=days), (self.ends - self.begins) / 3)

    def words(self, now: datetime) -> str:
        """When it ends or ended, and what to do."""
        left, day = self.left(now), f"{self.ends:%Y-%m-%d %H:%M} UTC"
        when = f"ended at {day}" if left <= timedelta(0) else f"ends at {day}, in {_span(left)}"
        return f"the {self.kind} of {self.of} {when}: {self.remedy}"


class Warnings:
    """Says when to warn of an end: as 30, 14, 7, 3 and 1 days are left, and then once a day."""

    def __init__(self) -> None:
        self._warned: dict[tuple[str, str, datetime], int] = {}

    def due(self, terms: Iterable[Term], now: datetime) -> list[Term]:
        """The terms to warn of now; each is named once for each stage."""
        due: list[Term] = []
        seen: dict[tuple[str, str, datetime], int] = {}
        for term in terms:
            key, stage = (term.kind, term.of, term.ends), stage_of(term, now)
            if stage is None:
                continue
            seen[key] = stage
            if stage < self._warned.get(key, math.inf):
                due.append(term)
        self._warned = seen
        return due


def stage_of(term: Term, now: datetime) -> int | None:
    """The fewest days of `WARN_DAYS` that are left no more; below one day, whole days that are left, negative ones
    after the end. None: it is too early to warn."""
    if not term.is_ending(now, WARN_DAYS[0]):
        return None
    left = term.left(now)
    if left < _DAY:
        return math.floor(left / _DAY)
    return min(days for days in WARN_DAYS if left <= timedelta(days=days))


def _span(left: timedelta) -> str:
    days, hours = left // _DAY, math.ceil(left / timedelta(hours=1))
    return f"{days} day{'s' if days > 1 else ''}" if days >= 1 else f"{hours} hour{'s' if hours > 1 else ''}"
