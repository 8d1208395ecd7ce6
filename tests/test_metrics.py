from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.messages import PeerId
from pens.metrics import Interval, Traffic, interval, neighbour_agreement, worst_tenth


def test_precision_and_recall_are_the_papers() -> None:
    kinds = (0, 0, 0, 1, 1, 1)
    found = neighbour_agreement({PeerId(0): [PeerId(1), PeerId(3)], PeerId(3): [PeerId(4), PeerId(5)]}, kinds)
    assert found is not None
    assert found.precision == pytest.approx((0.5 + 1) / 2)
    assert found.recall == pytest.approx((0.5 + 1) / 2)
    assert neighbour_agreement({}, kinds) is None


def test_the_interval_is_students() -> None:
    four = interval([0.1, 0.2, 0.3, 0.4])
    assert four.mean == pytest.approx(0.25)
    assert four.half_width == pytest.approx(3.182446 * np.std([0.1, 0.2, 0.3, 0.4], ddof=1) / 2, rel=1e-5)
    assert interval([0.5]).half_width is None
    assert str(interval([0.5])) == "50.0"
    assert str(interval([0.5, 0.5])) == "50.0 ± 0.0"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=45))
def test_the_worst_tenth_is_the_mean_of_the_lowest(values: list[float]) -> None:
    worst = worst_tenth(np.array(values))
    assert min(values) - 1e-12 <= worst <= np.mean(values) + 1e-12
    if len(values) <= 10:
        assert worst == min(values)


def test_traffic_after_the_end_is_not_counted() -> None:
    traffic = Traffic(2)
    for time, peer in ((1.0, 0), (2.0, 1), (2.0, 0), (2.5, 1)):
        traffic.count("sent", PeerId(peer), time)
    traffic.settle(1.5)
    assert traffic.sent == [1, 0]
    other = Traffic(2)
    other.restore(json.loads(json.dumps(traffic.state())))
    other.settle(2.0)
    assert other.sent == [2, 1]


def test_a_difference_has_a_sign_unless_it_is_nothing() -> None:
    assert Interval(0.0123, 0.004).signed() == "+1.2 ± 0.4"
    assert Interval(-0.0123, None).signed() == "−1.2"
    assert Interval(-0.0004, 0.01).signed() == "0.0 ± 1.0"
