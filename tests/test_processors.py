# SPDX-License-Identifier: Apache-2.0
"""Cores that a process may use, and whether it gets them. No test looks at a real clock."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens import processors
from pens.processors import CpuShare, cpu_quota, usable_cores

V1 = "12:pids:/x\n4:cpu,cpuacct:/docker/abc\n3:cpuset:/docker/abc\n"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


@pytest.mark.parametrize(
    ("groups", "files", "quota"),
    [
        ("0::/\n", {"": {"cpu__max": "150000 100000"}}, 1.5),
        ("0::/\n", {"": {"cpu__max": "max 100000"}}, None),
        ("0::/\n", {}, None),
        ("0::/a/b\n", {"a/b": {"cpu__max": "max 100000"}, "a": {"cpu__max": "200000 100000"}}, 2.0),
        ("0::/a/b\n", {"a/b": {"cpu__max": "50000 100000"}, "a": {"cpu__max": "200000 100000"}}, 0.5),
        ("0::/of/the/host\n", {"": {"cpu__max": "300000 100000"}}, 3.0),
        (V1, {"cpu,cpuacct/docker/abc": {"cpu__cfs_quota_us": "400000", "cpu__cfs_period_us": "100000"}}, 4.0),
        (V1, {"cpu,cpuacct": {"cpu__cfs_quota_us": "25000", "cpu__cfs_period_us": "50000"}}, 0.5),
        (V1, {"cpu,cpuacct": {"cpu__cfs_quota_us": "-1", "cpu__cfs_period_us": "100000"}}, None),
        (V1, {"cpuset/docker/abc": {"cpu__max": "100000 100000"}, "": {"cpu__max": "100000 100000"}}, None),
        ("0::/\n", {"": {"cpu__max": "many"}}, None),
        ("0::/\n", {"": {"cpu__max": "100000 0"}}, None),
    ],
)
def test_quotas_are_read_from_both_versions_of_control_groups(
    groups: str, files: dict[str, dict[str, str]], quota: float | None, tmp_path: Path
) -> None:
    (tmp_path / "cgroup").write_text(groups)
    for folder, contents in files.items():
        write(tmp_path / "mounted" / folder, **contents)
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "mounted") == quota


def test_without_control_groups_there_is_no_quota(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "none", tmp_path) is None


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (2.5, 3), (0.2, 1), (64.0, 8)])
def test_a_quota_is_worth_so_many_cores(quota: float | None, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(processors, "cpu_quota", lambda: quota)
    assert usable_cores() == cores


class Clocks:
    """A wall clock, and one of the processor's time."""

    def __init__(self) -> None:
        self.wall_s = self.used_s = 100.0

    def share(self) -> CpuShare:
        return CpuShare(lambda: self.wall_s, lambda: self.used_s)

    def compute(self, share: CpuShare, wall_s: float, used_s: float) -> None:
        with share.measured():
            self.wall_s += wall_s
            self.used_s += used_s


def test_a_small_share_is_told_once_with_what_to_do() -> None:
    clocks = Clocks()
    share = clocks.share()
    for _ in range(14):
        clocks.compute(share, 1, 0.25)
        assert share.complaint() is None
    clocks.compute(share, 1, 0.25)
    told = share.complaint()
    assert told
    assert told.startswith("in the last 15 s this run had 0.25 of a core")
    assert "4.0 times as long" in told
    assert "stop the other processes, or start fewer runs at once" in told
    clocks.compute(share, 100, 1)
    assert share.complaint() is None


def test_what_is_not_computing_does_not_count() -> None:
    clocks = Clocks()
    share = clocks.share()
    for _ in range(40):
        clocks.compute(share, 1, 0.9)
        clocks.wall_s += 10  # saving, say
        assert share.complaint() is None


def test_a_run_that_is_hindered_later_is_told_then() -> None:
    clocks = Clocks()
    share = clocks.share()
    clocks.compute(share, 1000, 1900)
    assert share.complaint() is None
    clocks.compute(share, 20, 2)
    assert "0.10 of a core" in (share.complaint() or "")


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.6, 64)), max_size=50))
def test_who_has_most_of_a_core_hears_nothing(windows: list[tuple[float, float]]) -> None:
    clocks = Clocks()
    share = clocks.share()
    for wall_s, cores in windows:
        clocks.compute(share, wall_s, wall_s * cores * 1.001)
        assert share.complaint() is None
