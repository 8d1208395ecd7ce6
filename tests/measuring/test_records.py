# SPDX-License-Identifier: Apache-2.0
"""What learners counted becomes columns: of a simulation's peers, and of one real peer with large numbers."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from pens.learning.curves import UpdateRecord
from pens.learning.ledger import Ledger
from pens.measuring.records import HISTORY_TYPES, PAIR_COUNTS, comparisons_of, history_of, pairs_of
from pens.measuring.results import History
from pens.protocol.messages import PeerId
from pens.settings.tree import Settings
from tests.conftest import TINY
from tests.fakes import fake_simulation


def test_pairs_are_listed_by_receiver_and_sender() -> None:
    """Merges, selections and comparisons of the same pair stand in one row; a pair may have only some of them."""
    simulator, _ = fake_simulation(Settings().replace({**TINY, "peers": 10}), "random")
    learners = simulator.learners
    learners.by_peer[PeerId(1)].merges.update({PeerId(3): 2, PeerId(0): 1})
    learners.by_peer[PeerId(1)].tally.add([PeerId(3), PeerId(5)], [PeerId(5)])
    learners.by_peer[PeerId(4)].tally.add([PeerId(2)], [PeerId(2)])
    learners.by_peer[PeerId(7)].tally.add([PeerId(8), PeerId(1)], [PeerId(1)])
    learners.by_peer[PeerId(1)].merges[PeerId(10)] = 5  # a server
    pairs = pairs_of(learners, range(10))
    rows = zip(pairs.receiver, pairs.sender, pairs.merged, pairs.selected, pairs.sampled, strict=True)
    assert [tuple(map(int, row)) for row in rows] == [
        (1, 0, 1, 0, 0),
        (1, 3, 2, 0, 1),
        (1, 5, 0, 1, 1),
        (4, 2, 0, 1, 1),
        (7, 1, 0, 1, 1),
        (7, 8, 0, 0, 1),
    ]
    everybody = pairs_of(learners)
    assert (1, 10, 5) in zip(everybody.receiver, everybody.sender, everybody.merged, strict=True)


def test_comparisons_are_counted_by_receiver_round_and_sender() -> None:
    ledger = Ledger("peer", "round", "sender", "chosen")
    for row in ((2, 1, 0, 1), (0, 2, 1, 0), (2, 1, 0, 0), (2, 1, 1, 1), (0, 1, 2, 1), (2, 1, 0, 1)):
        ledger.add(*row)
    found = comparisons_of(ledger)
    assert found
    columns = (found.receiver, found.round, found.sender, found.sampled, found.selected)
    assert [column.tolist() for column in columns] == [
        [0, 0, 2, 2],
        [1, 2, 1, 1],
        [2, 1, 0, 1],
        [1, 1, 3, 1],
        [1, 0, 2, 1],
    ]
    assert comparisons_of(Ledger("peer", "round", "sender", "chosen")) is None


def test_the_history_is_in_order_of_virtual_time() -> None:
    """Whatever order updates were computed in; `received` belongs to the update's own peer and version."""
    simulator, _ = fake_simulation(Settings().replace(TINY), "random")
    learners, traffic = simulator.learners, simulator.traffic
    traffic.begin_update(PeerId(1), 1)
    traffic.begin_update(PeerId(0), 1)
    traffic.count("received", PeerId(1), 1.0, models=3)
    traffic.begin_update(PeerId(1), 2)
    learners.history.add(
        [
            UpdateRecord(2.5, PeerId(1), 2, False, 3, 0.1, 0.2, 0.3, 4),
            UpdateRecord(0.5, PeerId(1), 1, True, 0, 0.4, 0.5, 0.6, 2),
            UpdateRecord(0.5, PeerId(0), 1, True, 0, 0.7, 0.8, 0.9, 0),
        ]
    )
    history = history_of(learners, traffic.received_at)
    assert history.time.tolist() == [0.5, 0.5, 2.5]
    assert history.peer.tolist() == [0, 1, 1]
    assert history.version.tolist() == [1, 1, 2]
    assert history.searching.tolist() == [True, True, False]
    assert history.merged.tolist() == [0, 0, 3]
    assert [column.dtype for column in (history.peer, history.version, history.merged)] == [np.int64] * 3
    assert history.train_loss.tolist() == [0.7, 0.4, 0.1]
    assert history.val_loss.tolist() == [0.8, 0.5, 0.2]
    assert history.val_accuracy.tolist() == [0.9, 0.6, 0.3]
    assert history.epochs is not None
    assert history.epochs.tolist() == [0, 2, 4]
    assert history.received is not None
    assert history.received.tolist() == [0, 0, 3]


def test_the_numbers_of_peers_in_a_network_may_be_large() -> None:
    """As on a real network, where they take eight bytes."""
    me, one, other = 2**62 + 1, 2**61 + 5, 2**62
    ledger = Ledger("peer", "round", "sender", "chosen", wide=True)
    for row in ((me, 1, other, 1), (me, 1, one, 0), (me, 1, other, 0)):
        ledger.add(*row)
    found = comparisons_of(ledger)
    assert found
    assert [column.tolist() for column in vars(found).values()] == [[me, me], [1, 1], [one, other], [1, 2], [0, 1]]


def test_every_column_has_its_type() -> None:
    assert list(HISTORY_TYPES) == [field.name for field in fields(History)]
    assert set(UpdateRecord._fields) < set(HISTORY_TYPES)
    assert PAIR_COUNTS == ("merged", "selected", "sampled")
