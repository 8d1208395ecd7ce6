# SPDX-License-Identifier: Apache-2.0
"""How many cores this process may use, and whether it gets them.

PyTorch counts the cores that a process may run on. In a container with a quota ("the time of two of the 64 cores") that
is far too many: their threads use up the quota at once, and then all of them wait. Linux tells quotas as files of the
process's control groups (cgroups): `cpu.max` in version 2, `cpu.cfs_quota_us` and `cpu.cfs_period_us` in version 1.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 15.0
_LITTLE = 0.6
"""Of one core. A run that nobody hinders has a whole one at least."""


def usable_cores() -> int:
    """Cores that this process may run on, or as many as its quota is worth; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The smallest quota of the process's control groups and those around them, in cores; None: there is none.

    `groups`: the file that names them; `mounted`: where their files are. Within a container the names may be those of
    the system outside, of which only the innermost folder is mounted: the mount itself is looked at, too.
    """
    quotas = [quota for folder in _folders(groups, mounted) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _folders(groups: Path, mounted: Path) -> Iterator[Path]:
    try:
        lines = groups.read_text().splitlines()
    except OSError:  # not Linux, or hidden
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mounted / controllers if controllers else mounted
        path = root / name.lstrip("/")
        yield from (folder for folder in (path, *path.parents) if folder.is_relative_to(root))


def _quota_of(folder: Path) -> float | None:
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return float(quota) / float(period) if quota not in ("max", "-1") else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


class CpuShare:
    """Notices, once, that a computation gets little of a core because others take it."""

    def __init__(
        self, wall: Callable[[], float] = time.perf_counter, used: Callable[[], float] = time.process_time
    ) -> None:
        self._wall, self._used = wall, used
        self._wall_s = self._used_s = 0.0
        self._told = False

    @contextmanager
    def measured(self) -> Iterator[None]:
        """What happens within computes, and waits for nothing."""
        wall, used = self._wall(), self._used()
        yield
        self._wall_s += self._wall() - wall
        self._used_s += self._used() - used

    def complaint(self) -> str | None:
        """What to tell the user, if there is something to tell. Looks at the last quarter of a minute, or longer."""
        if self._told or self._wall_s < _PATIENCE_S:
            return None
        wall, share = self._wall_s, self._used_s / self._wall_s
        self._wall_s = self._used_s = 0.0
        if share >= _LITTLE:
            return None
        self._told = True
        return (
            f"in the last {wall:.0f} s this run had {share:.2f} of a core{_load()}: other processes keep the cores "
            f"busy, and it takes {1 / max(share, 0.01):.1f} times as long as alone, or longer. Its results do not "
            "depend on that. To finish sooner, stop the others, or start fewer runs at once"
        )


def _load() -> str:
    """How many want to run, and on how many cores."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f" (load {os.getloadavg()[0]:.1f}, {usable_cores()} cores for this process)"
