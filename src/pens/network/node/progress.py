# SPDX-License-Identifier: Apache-2.0
"""When a peer logs its progress: soon after each of its phases began, then less and less often."""

from __future__ import annotations

import math

_FIRST_S = 10.0
_LONGEST_S = 600.0


class Progress:
    """Due after 10, 30 and 70 seconds of a phase, and so on with twice the pause, at most ten minutes."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._pause, self._next = _FIRST_S, math.inf

    def is_due(self, phase: str, now: float) -> bool:
        """Whether to log the progress now; if so, it counts as logged."""
        if phase != self._phase:
            self._phase, self._pause, self._next = phase, _FIRST_S, now + _FIRST_S
        if now < self._next:
            return False
        self._pause = min(_LONGEST_S, 2 * self._pause)
        self._next = now + self._pause
        return True
