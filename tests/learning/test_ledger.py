# SPDX-License-Identifier: Apache-2.0
"""What a run records per event, and that a checkpoint brings it back."""

from __future__ import annotations

import numpy as np
import pytest

from pens.learning.ledger import Ledger
from pens.protocol.messages import PeerId
from pens.simulation.message_counts import MessageCounts


def test_rows_come_back_from_a_checkpoint_and_grow_on() -> None:
    ledger = Ledger("peer", "chosen")
    assert len(ledger) == 0
    ledger.add(3, True)
    again = Ledger("peer", "chosen")
    again.restore(ledger.state())
    again.add(4, False)
    np.testing.assert_array_equal(again.column("peer"), [3, 4])
    np.testing.assert_array_equal(again.column("chosen"), [1, 0])
    assert len(ledger) == 1
    with pytest.raises(ValueError, match="argument"):
        ledger.add(3)


def test_an_empty_ledger_comes_back_too() -> None:
    again = Ledger("peer", "chosen")
    again.restore(Ledger("peer", "chosen").state())
    assert len(again) == 0


def test_models_received_are_known_for_each_update() -> None:
    traffic = MessageCounts(2)
    for peer, version, more in ((1, 1, 0), (0, 1, 0), (1, 2, 5), (0, 2, 3), (1, 3, 4)):
        for _ in range(more):
            traffic.count("received", PeerId(peer), float(version))
        traffic.begin_update(PeerId(peer), version)
    found = traffic.received_at(np.array([1, 0, 1, 1]), np.array([3, 2, 1, 2]))
    np.testing.assert_array_equal(found, [9, 3, 0, 5])
