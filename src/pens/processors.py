# SPDX-License-Identifier: Apache-2.0
"""Finds out how many cores this process may use, and notices when other processes take them.

PyTorch counts the cores that a process may run on. In a container with a quota ("the time of two of the 64 cores") that
is far too many: 64 threads use up the quota at once, and then all of them wait. Linux gives quotas as files of the
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
"""Below this share of one core a run is slowed down by others. A run that is alone has at least one whole core."""


def usable_cores() -> int:
    """The cores that this process may run on, but no more than its quota is worth; at least one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def cpu_quota(groups: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The smallest quota of the process's control groups and of those that contain them, in cores; None: no quota.

    `groups`: the file that names the control groups; `mounted`: the folder of their files. Within a container the names
    may be those of the system outside, of which only the innermost folder is mounted. So the mounted folder itself is
    read, too.
    """
    quotas = [quota for folder in _folders(groups, mounted) if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _folders(groups: Path, mounted: Path) -> Iterator[Path]:
    """The folders of the process's control groups and of those that contain them."""
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
    """The quota that a control group's folder states, in cores; None: no quota."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period"))
        return float(quota) / float(period) if quota not in ("max", "-1") else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


class CpuShare:
    """Notices, once, that a computation gets little of a core because other processes take it."""

    def __init__(
        self, wall: Callable[[], float] = time.perf_counter, used: Callable[[], float] = time.process_time
    ) -> None:
        self._wall, self._used = wall, used
        self._wall_s = self._used_s = 0.0
        self._told = False

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure what runs within. It must compute and wait for nothing, so that its share of a core is its own."""
        wall, used = self._wall(), self._used()
        yield
        self._wall_s += self._wall() - wall
        self._used_s += self._used() - used

    def complaint(self) -> str | None:
        """A warning for the user if the computation got little of a core in the last 15 seconds or more, else None."""
        if self._told or self._wall_s < _PATIENCE_S:
            return None
        wall, share = self._wall_s, self._used_s / self._wall_s
        self._wall_s = self._used_s = 0.0
        if share >= _LITTLE:
            return None
        self._told = True
        return (
            f"in the last {wall:.0f} s this run had {share:.2f} of a core{_load()}: other processes keep the cores "
            f"busy, and the run takes {1 / max(share, 0.01):.1f} times as long as alone, or longer. Its results do not "
            "depend on that. To finish sooner, stop the other processes, or start fewer runs at once"
        )


def _load() -> str:
    """The system's load and the usable cores, in words."""
    if not hasattr(os, "getloadavg"):
        return ""
    return f" (load {os.getloadavg()[0]:.1f}, {usable_cores()} cores for this process)"
