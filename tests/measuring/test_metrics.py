# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.measuring.metrics import (
    UNKNOWN_CLUSTER,
    Interval,
    clusters_are_known,
    forward_passes,
    interval,
    neighbour_agreement,
    worst_tenth,
)
from pens.protocol.messages import PeerId
from pens.simulation.message_counts import MessageCounts


def test_precision_and_recall_are_the_papers() -> None:
    """Section 6.1: of the selected, how many are of the own cluster; of the own cluster, how many are selected.

    Clusters {0, 1, 2, 3} and {4, 5}. Peer 0 selects 1 and 4: precision 1/2, recall 1/3. Peer 4 selects 5: 1 and 1.
    Peer 5 selects 0, 1 and 4: 1/3 and 1. Peer 1 selects nobody: no precision, recall 0."""
    clusters = (0, 0, 0, 0, 1, 1)
    selections = {0: (1, 4), 4: (5,), 5: (0, 1, 4), 1: ()}
    found = neighbour_agreement({PeerId(p): tuple(map(PeerId, ns)) for p, ns in selections.items()}, clusters)
    assert found is not None
    assert found.precision == pytest.approx((1 / 2 + 1 + 1 / 3) / 3)
    assert found.recall == pytest.approx((1 / 3 + 1 + 1 + 0) / 4)


def test_agreement_is_not_known_where_nobody_could_be_found() -> None:
    """Nobody selected; nobody was selected; or nobody has another peer of its own cluster."""
    assert neighbour_agreement({}, (0, 0)) is None
    assert neighbour_agreement({PeerId(0): ()}, (0, 0)) is None
    assert neighbour_agreement({PeerId(0): (PeerId(1),)}, (0, 1)) is None
    both = neighbour_agreement({PeerId(0): (PeerId(1),), PeerId(1): (PeerId(2),)}, (0, 1, 1))
    assert both is not None
    assert (both.precision, both.recall) == (0.5, 1.0)  # peer 0 has no recall: it is alone in its cluster


def test_the_interval_over_four_seeds_by_hand() -> None:
    """Section 5.4. 10, 20, 30 and 40 %: standard deviation √(500 / 3) = 12.91, error 12.91 / √4 = 6.455, and Student's
    t with three degrees of freedom is 3.182 at 97.5 %: 25.0 ± 20.5."""
    assert str(interval([0.1, 0.2, 0.3, 0.4])) == "25.0 ± 20.5"
    assert interval([0.1, 0.2, 0.3, 0.4]).half_width == pytest.approx(0.2054257, rel=1e-5)
    assert interval([0.4, 0.5, 0.6]).half_width == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)  # two degrees
    assert interval([0.4, 0.6]).half_width is None


def test_the_worst_tenth_by_hand() -> None:
    assert worst_tenth(np.array([0.9] * 17 + [0.3, 0.1, 0.5])) == pytest.approx((0.1 + 0.3) / 2)
    assert worst_tenth(np.array([0.9] * 9 + [0.2, 0.4])) == pytest.approx(0.3)  # 11 peers: two of them
    assert worst_tenth(np.array([0.5, 0.2])) == pytest.approx(0.2)


def test_the_interval_is_students() -> None:
    four = interval([0.1, 0.2, 0.3, 0.4])
    assert four.mean == pytest.approx(0.25)
    assert four.half_width == pytest.approx(3.182446 * np.std([0.1, 0.2, 0.3, 0.4], ddof=1) / 2, rel=1e-5)
    assert interval([0.5]).half_width is None
    assert str(interval([0.5])) == "50.0"
    assert str(interval([0.5, 0.5, 0.5])) == "50.0 ± 0.0"


def test_two_seeds_are_shown_as_they_are() -> None:
    two = interval([0.841, 0.865])
    assert (two.half_width, two.values) == (None, (0.841, 0.865))
    assert two.percent() == "85.3 (2 seeds: 84.1, 86.5)"
    assert two.brief() == "85.3 (84.1, 86.5)"
    assert two.short() == "85.3"
    assert interval([-0.01, 0.03]).signed() == "+1.0 (2 seeds: −1.0, +3.0)"
    assert interval([0.841, 0.865, 0.85]).values == ()


def test_work_is_counted_in_forward_passes_of_one_sample() -> None:
    # 2 epochs of 40 samples train 80 samples at 3 passes each; 30 are validated; 8 models are scored on 40 samples
    assert forward_passes(trained=2 * 40, validated=30, scored=8 * 40) == 240 + 30 + 320


def test_clusters_of_one_peer_each_or_without_a_name_are_not_known() -> None:
    assert clusters_are_known((0, 0, 1), ("0°", "180°"))
    assert clusters_are_known((0, 0, 0), ("all alike",))
    assert not clusters_are_known((0, 1, 2), ("a", "b", "c"))
    assert not clusters_are_known((0, 0, 1), ("0°", UNKNOWN_CLUSTER))
    assert not clusters_are_known((0, 0, 0), (UNKNOWN_CLUSTER,))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=45))
def test_the_worst_tenth_is_the_mean_of_the_lowest(values: list[float]) -> None:
    worst = worst_tenth(np.array(values))
    assert min(values) - 1e-12 <= worst <= np.mean(values) + 1e-12
    if len(values) <= 10:
        assert worst == min(values)


def test_traffic_after_the_end_is_not_counted() -> None:
    traffic = MessageCounts(2)
    for time, peer in ((1.0, 0), (2.0, 1), (2.0, 0), (2.5, 1)):
        traffic.count("sent", PeerId(peer), time)
    traffic.settle(1.5)
    assert traffic.sent == [1, 0]
    other = MessageCounts(2)
    other.restore(json.loads(json.dumps(traffic.state())))
    other.settle(2.0)
    assert other.sent == [2, 1]


def test_a_difference_has_a_sign_unless_it_is_nothing() -> None:
    assert Interval(0.0123, 0.004).signed() == "+1.2 ± 0.4"
    assert Interval(-0.0123, None).signed() == "−1.2"
    assert Interval(-0.0004, 0.01).signed() == "0.0 ± 1.0"
    assert Interval(0.0004997, None).signed() == "0.0"
    assert Interval(0.0005003, None).signed() == "+0.1"


def test_models_are_credited_to_the_peer_and_the_kind_of_traffic() -> None:
    """Three peers. All before 3.0 is certain, what comes at 3.0 is, too, and what comes later has to be settled."""
    traffic = MessageCounts(3, certain_until=3.0)
    traffic.count("sent", PeerId(2), 1.0)
    traffic.count("received", PeerId(1), 2.0, models=4)
    traffic.count("refused", PeerId(1), 3.0)
    traffic.count("received", PeerId(2), 3.5, models=2)
    assert (traffic.sent, traffic.received, traffic.refused) == ([0, 0, 1], [0, 4, 0], [0, 1, 0])
    traffic.settle(3.4)
    assert traffic.received == [0, 4, 0]
    traffic.settle(3.5)
    assert traffic.received == [0, 4, 2]
    traffic.settle(1.0)  # what was certain stays so
    traffic.count("sent", PeerId(0), 3.5)
    assert traffic.sent == [1, 0, 1]


def test_an_update_knows_what_its_peer_had_received_when_it_began() -> None:
    """Also what is not certain to lie before the end of the run, and what was refused. Peers begin updates in turns."""
    traffic = MessageCounts(3)
    traffic.begin_update(PeerId(2), 1)
    traffic.count("received", PeerId(2), 1.0, models=3)
    traffic.begin_update(PeerId(0), 1)
    traffic.begin_update(PeerId(2), 2)
    traffic.count("received", PeerId(0), 2.0)
    traffic.count("sent", PeerId(2), 2.0)
    traffic.begin_update(PeerId(0), 2)
    traffic.begin_update(PeerId(2), 3)
    peers, versions = np.array([0, 2, 2, 0, 2]), np.array([2, 1, 2, 1, 3])
    assert traffic.received_at(peers, versions).tolist() == [1, 0, 3, 0, 3]


def test_restored_traffic_goes_on_where_it_was() -> None:
    traffic = MessageCounts(2)
    traffic.count("received", PeerId(1), 1.0, models=2)
    traffic.count("refused", PeerId(1), 1.0)
    traffic.count("sent", PeerId(0), 4.0)
    traffic.settle(1.0)
    other = MessageCounts(2)
    other.restore(json.loads(json.dumps(traffic.state())))
    other.begin_update(PeerId(1), 1)
    assert (other.sent, other.received, other.refused) == ([0, 0], [0, 2], [0, 1])
    assert other.received_at(np.array([1]), np.array([1])).tolist() == [2]
    other.settle(4.0)
    assert other.sent == [1, 0]
