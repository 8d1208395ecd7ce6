# SPDX-License-Identifier: Apache-2.0
"""The audit log: who was sent which model, who was received, merged, refused and chosen, and when.

    DIR/audit.jsonl      one JSON object on each line; older files are audit.jsonl.1, audit.jsonl.2, …
    {"time": "2031-05-01T09:30:00.123Z", "life": 2, "event": "sent", "member": "b", "version": 7, "sha256": "…", …}

    begins      a life of the peer begins, and goes on from `version`; in its first life, from nothing
    sent        a member took our model of this version
    received    a member's model was taken; its `version` is the member's own count
    merged      our model of this `version` was made from these members' models
    refused     a member's model was not taken, and why; of one member and one reason one line an hour, with `times`
    neighbours  the peer has these neighbours from now on
    ends        the peer exits cleanly

What was sent and received happened, whatever becomes of the peer. But a peer that is killed repeats the update in
progress: of lines `merged` about one version, the last one counts, and a line `begins` says from which version on they
may be repeated. A line that a power cut tore is left as it is, and the next one begins on a line of its own.

A file that another program moved away (logrotate) is begun anew. A log that cannot be written ends the peer, since it
would go on without a record.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pens.storage.files import not_written

_REFUSED_S = 3600.0
_KINDS = 10_000  # of refusals that are told apart


class Audit:
    """An audit log that is turned off: it notes nothing."""

    life = 0
    is_on = False

    def note(self, event: str, **about: Any) -> None:
        """Write one line."""

    def note_refused(self, member: str, why: str, now: float) -> None:
        """Write that a member's model was not taken, at most once an hour for one member and reason. `now`: seconds."""


@dataclass
class _Refusal:
    told: float
    times: int = 0


@dataclass
class AuditLog(Audit):
    """An audit log in a file, whose size and number of older files are bounded."""

    path: Path
    max_bytes: int
    keep: int
    """How many older files remain; at least one."""
    on_failure: Callable[[Exception], None] = field(default=lambda error: None)
    """Called with the error where a line cannot be written."""
    life: int = 0
    is_on = True
    _refusals: dict[tuple[str, str], _Refusal] = field(default_factory=dict)
    _failed: bool = False

    def note(self, event: str, **about: Any) -> None:
        if self._failed:
            return
        moment = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        try:
            self._write({"time": moment, "life": self.life, "event": event, **about})
        except OSError as error:
            self._failed = True
            self.on_failure(not_written(self.path, error))

    def note_refused(self, member: str, why: str, now: float) -> None:
        seen = self._refusals.get((member, why))
        if seen and now - seen.told < _REFUSED_S:
            seen.times += 1
            return
        if len(self._refusals) < _KINDS:
            self._refusals[member, why] = _Refusal(now)
        self.note("refused", member=member, why=why, **({"times": 1 + seen.times} if seen else {}))

    def _write(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                text = b"\n" + text
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
        if size + len(text) >= self.max_bytes:
            self._rotate()

    def _rotate(self) -> None:
        """Begin a new file; the oldest of the kept ones goes."""
        older = [self.path, *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, self.keep + 1))]
        for source, target in reversed(list(itertools.pairwise(older))):
            if source.exists():
                source.replace(target)
