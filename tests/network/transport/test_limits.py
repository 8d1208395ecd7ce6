# SPDX-License-Identifier: Apache-2.0
"""Bounds hold whatever others do."""

from __future__ import annotations

from contextlib import ExitStack

from hypothesis import given
from hypothesis import strategies as st

from pens.network.transport.interface import Reception
from pens.network.transport.limits import Intake, Limits, RateLimit

STEPS = st.lists(st.tuples(st.floats(0, 3), st.sampled_from("abc")), max_size=60)


@given(st.floats(0.1, 5), st.integers(1, 5), STEPS)
def test_nobody_gets_more_than_its_rate_and_nobody_pays_for_others(
    per_s: float, burst: int, steps: list[tuple[float, str]]
) -> None:
    now = 0.0
    together = RateLimit(per_s, burst, lambda: now)
    alone = {sender: RateLimit(per_s, burst, lambda: now) for sender in "abc"}
    granted: dict[str, list[float]] = {sender: [] for sender in "abc"}
    for wait_s, sender in steps:
        now += wait_s
        got = together.take(sender)
        assert got == alone[sender].take(sender)
        if got:
            granted[sender].append(now)
    for times in granted.values():
        for first in range(len(times)):
            for last in range(first, len(times)):
                assert last - first + 1 <= burst + per_s * (times[last] - times[first]) + 1e-6


def test_a_rate_limit_forgets_those_who_rest() -> None:
    now = 0.0
    rate = RateLimit(1.0, 3, lambda: now)
    for number in range(100):
        rate.take(str(number))
    now = 3.0
    rate.take("last")
    assert len(rate._buckets) == 1


def test_bytes_beyond_a_rate_are_paid_by_waiting() -> None:
    """600 at once and 10 a second: of 700 bytes 100 are owed, which takes ten seconds."""
    now = 0.0
    rate = RateLimit(10.0, 600, lambda: now)
    assert [rate.spend("a", 500), rate.spend("a", 200), rate.spend("b", 600)] == [0.0, 10.0, 0.0]
    now = 4.0
    assert rate.spend("a", 40) == 10.0
    now = 14.0
    assert rate.spend("a", 0) == 0.0


@given(st.lists(st.integers(1, 60), max_size=20))
def test_bytes_on_their_way_in_are_bounded_and_given_back(sizes: list[int]) -> None:
    intake = Intake(Limits(receiving_bytes=100), lambda: 0.0)
    with ExitStack() as stack:
        for size in sizes:
            before = intake.bytes_expected
            assert stack.enter_context(intake.space(size)) == (before + size <= 100)
            assert intake.bytes_expected <= 100
    assert intake.bytes_expected == 0


def test_one_model_of_a_sender_at_a_time() -> None:
    intake = Intake(Limits(), lambda: 0.0)
    with intake.turn("a") as first:
        with intake.turn("a") as second, intake.turn("b") as other:
            assert (first, second, other) == (True, False, True)
        with intake.turn("a") as again:
            assert not again
    with intake.turn("a") as free:
        assert free


def test_sizes_and_rates_are_judged() -> None:
    intake = Intake(Limits(max_model_bytes=10, burst_models=2), lambda: 0.0)
    assert [intake.judge("a", size)[1] for size in (0, 11, 10, 1, 1)] == ["size", "size", "", "", "rate"]
    assert intake.judge("b", 1) == (Reception.TAKEN, "")


def test_limits_that_change_count_from_now_on() -> None:
    intake = Intake(Limits(models_per_s=1e-9, burst_models=1, gossip_per_s=1e-9, burst_gossip=1), lambda: 0.0)
    assert [intake.judge(name, 9)[0] for name in "aab"] == [Reception.TAKEN, Reception.REFUSED, Reception.TAKEN]
    assert [intake.may_gossip(name) for name in "aa"] == [True, False]
    intake.change(Limits(models_per_s=1e-9, burst_models=2, gossip_per_s=1e-9, burst_gossip=2, max_model_bytes=9))
    assert [intake.judge("c", 9)[0] for _ in range(3)] == [Reception.TAKEN, Reception.TAKEN, Reception.REFUSED]
    assert [intake.may_gossip("c") for _ in range(3)] == [True, True, False]
    assert intake.judge("d", 10) == (Reception.REFUSED, "size")
