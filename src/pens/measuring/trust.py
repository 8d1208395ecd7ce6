# SPDX-License-Identifier: Apache-2.0
"""What peers that do not trust others' models found, and what that cost (docs/decisions/0081)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from pens.learning.learner import Learner
from pens.protocol.conduct import VERDICTS


@dataclass(frozen=True)
class Dropped:
    """A peer dropped another, because its models kept hurting."""

    time: float
    peer: int
    other: int


@dataclass(frozen=True)
class TrustRecord:
    """Of all peers of a run, or of one real peer."""

    verdicts: Mapping[str, int]
    """How the received models did, by `pens.protocol.conduct.Verdict`."""
    kept_own: int
    """Merges of which nothing was taken."""
    judged: int
    """Models that peers ran over their validation samples to judge merges, beside what the method asks for."""
    dropped: tuple[Dropped, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        dropped = [[of.time, of.peer, of.other] for of in self.dropped]
        return {"verdicts": dict(self.verdicts), "kept_own": self.kept_own, "judged": self.judged, "dropped": dropped}

    @staticmethod
    def of_json(data: Mapping[str, Any] | None) -> TrustRecord | None:
        """What `to_json` made; None where a record has none."""
        if data is None:
            return None
        dropped = tuple(Dropped(float(time), int(peer), int(other)) for time, peer, other in data["dropped"])
        return TrustRecord(dict(data["verdicts"]), int(data["kept_own"]), int(data["judged"]), dropped)


def trust_of(learners: Iterable[Learner], dropped: tuple[Dropped, ...] = ()) -> TrustRecord:
    """What some peers found together."""
    known = [learner.mistrust for learner in learners]
    counts: Counter[str] = Counter()
    for mistrust in known:
        counts.update(mistrust.counts)
    verdicts: dict[str, int] = {verdict: counts[verdict] for verdict in VERDICTS}
    return TrustRecord(verdicts, sum(of.kept_own for of in known), sum(of.judged for of in known), dropped)


def summed(records: Iterable[TrustRecord], dropped: Iterable[Dropped]) -> TrustRecord | None:
    """What several peers found, each on its own; None where nobody looked. `dropped`: of all of them."""
    known = list(records)
    if not known:
        return None
    verdicts: dict[str, int] = {verdict: sum(of.verdicts.get(verdict, 0) for of in known) for verdict in VERDICTS}
    counts = sum(of.kept_own for of in known), sum(of.judged for of in known)
    return TrustRecord(verdicts, *counts, tuple(sorted(dropped, key=astuple)))


def dropped_words(count: int) -> str:
    """A warning that a peer dropped so many others."""
    return f"dropped {'another peer' if count == 1 else f'{count} others'}, whose models kept hurting"
