# SPDX-License-Identifier: Apache-2.0
"""An event loop whose clock jumps: nothing waits, and the time of an event is exactly the time it was set for."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Whenever all tasks wait, it is at once as late as the next timer says."""

    def __init__(self) -> None:
        self._virtual_time = 0.0
        super().__init__(_NeverWaits(self))
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._virtual_time

    def jump(self) -> None:
        """To the next timer."""
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        assert timers, "all tasks wait for something that cannot come"
        self._virtual_time = max(self._virtual_time, timers[0].when())


class _NeverWaits(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready: list[Any] = super().select(0)
        if not ready and (timeout is None or timeout > 0):
            self._loop.jump()
        return ready


def run_virtually(coroutine: Coroutine[Any, Any, T]) -> T:
    """To its end, in no time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(coroutine)
