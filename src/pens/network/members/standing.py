# SPDX-License-Identifier: Apache-2.0
"""Standing: whether a member is there, by how long ago there was news of it.

    alive ── suspect_s without news ──▶ suspect ── drop_s without news ──▶ dropped ── forget_s ──▶ (forgotten)
      ▲                                    │                                  │
      └────────────── news ────────────────┴──────────────────────────────────┘          left: the member said so

The more members there are, the less often there is news of each, because a member's traffic does not grow with them.
Then both times are longer in proportion, up to the time in which this member calls everyone in its view itself. But a
member that did not answer three calls, without news meanwhile, is dropped after `drop_s` at any size.
"""

from __future__ import annotations

from typing import Literal

from pens.network.members.roster import KnownMember
from pens.network.members.rules import MembershipRules

MemberStatus = Literal["alive", "suspect", "dropped", "left"]

_IN_VAIN = 3  # calls without an answer and without news meanwhile


class Standing:
    """Which members are there, as one member sees it."""

    def __init__(self, rules: MembershipRules) -> None:
        self._rules, self._slower = rules, 1.0

    def change(self, rules: MembershipRules) -> None:
        """Use other times from now on."""
        self._rules = rules

    def keep_pace(self, estimate: float, in_view: int, rounds_between: int) -> None:
        """There are about so many members, so many in view, and one of these is called each time after so many
        rounds."""
        called_s = 1.5 * in_view * rounds_between * self._rules.gossip_s
        self._slower = max(1.0, min(estimate / self._rules.prompt, called_s / self._rules.suspect_s))

    @property
    def suspect_s(self) -> float:
        """Seconds without news after which a member is suspected at the moment."""
        return self._slower * self._rules.suspect_s

    def of(self, known: KnownMember, now: float) -> MemberStatus:
        """The status of a member."""
        if known.record.left:
            return "left"
        silence = now - known.heard
        if known.silent >= _IN_VAIN and silence >= self._rules.drop_s:
            return "dropped"
        if silence < self._slower * self._rules.suspect_s:
            return "alive"
        return "suspect" if silence < self._slower * self._rules.drop_s else "dropped"

    def is_there(self, known: KnownMember, now: float) -> bool:
        """Whether a member is alive, or may be."""
        return self.of(known, now) in ("alive", "suspect")

    def is_gone(self, known: KnownMember, now: float) -> bool:
        """Whether a member has left, or was dropped."""
        return not self.is_there(known, now)
