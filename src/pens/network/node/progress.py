# SPDX-License-Identifier: Apache-2.0
"""When a peer tells how far it is: soon after each of its phases began, then more and more seldom."""

from __future__ import annotations

import math

_FIRST_S = 10.0
_LONGEST_S = 600.0


class Progress:
    """After 10, 30, 70 seconds of a phase, and so on with twice the pause each time, every ten minutes in the end."""

    def __init__(self) -> None:
        self._phase: str | None = None
        self._pause, self._next = _FIRST_S, math.inf

    def is_due(self, phase: str, now: float) -> bool:
        """Whether to tell it now; then it counts as told."""
        if phase != self._phase:
            self._phase, self._pause, self._next = phase, _FIRST_S, now + _FIRST_S
        if now < self._next:
            return False
        self._pause = min(_LONGEST_S, 2 * self._pause)
        self._next = now + self._pause
        return True
