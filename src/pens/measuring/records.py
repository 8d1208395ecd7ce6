# SPDX-License-Identifier: Apache-2.0
"""What learners counted, as typed results: of all peers of a simulation, or of the one peer of a node."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import fields

import numpy as np

from pens.data.samples import Array
from pens.learning.curves import UpdateRecord
from pens.learning.learners import Learners
from pens.learning.ledger import Ledger
from pens.measuring.results import Comparisons, History, Pairs

HISTORY_TYPES: Mapping[str, type[np.generic]] = {
    "time": np.float64,
    "peer": np.int64,
    "version": np.int64,
    "searching": np.bool_,
    "merged": np.int64,
    "train_loss": np.float64,
    "val_loss": np.float64,
    "val_accuracy": np.float64,
    "received": np.int64,
    "epochs": np.int64,
}
"""The columns of `History`, and the type of each."""

PAIR_COUNTS = tuple(field.name for field in fields(Pairs) if field.name not in ("receiver", "sender"))
"""What `Pairs` counts."""


def history_of(learners: Learners, received: Callable[[Array, Array], Array]) -> History:
    """The learning curves, in order of time. `received`: how many models each of these peers had received when it began
    the update that made this version of its model."""
    curves = learners.history.sorted()
    columns = {name: curves.column(name).astype(HISTORY_TYPES[name]) for name in UpdateRecord._fields}
    return History(**columns, received=received(columns["peer"], columns["version"]).astype(HISTORY_TYPES["received"]))


def pairs_of(learners: Learners, peers: Container[int] | None = None) -> Pairs:
    """How often each peer merged, selected and sampled each other peer, for pairs that did so at all. `peers`: those
    that are counted, both as receivers and as senders; None: all."""
    columns: list[list[int]] = [[], [], [], [], []]
    for peer, learner in learners.by_peer.items():
        merges, tally = learner.merges, learner.tally
        for other in sorted({*merges, *tally.sampled}):
            if peers is None or (peer in peers and other in peers):
                row = (peer, other, merges[other], tally.selected[other], tally.sampled[other])
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
    return Pairs(*(np.array(column, np.int64) for column in columns))


def comparisons_of(ledger: Ledger) -> Comparisons | None:
    """The comparisons of step 1, counted per receiver, round and sender, and sorted in that order."""
    if not len(ledger):
        return None
    columns = [np.unique(ledger.column(name), return_inverse=True) for name in ("peer", "round", "sender")]
    shape = tuple(len(values) for values, _ in columns)  # the numbers of peers in a network are too large for one
    keys = np.ravel_multi_index(tuple(places for _, places in columns), shape)
    keys, place, sampled = np.unique(keys, return_inverse=True, return_counts=True)
    selected = np.bincount(place, ledger.column("chosen"), len(keys)).astype(np.int64)
    receiver, round_, sender = (
        values[places] for (values, _), places in zip(columns, np.unravel_index(keys, shape), strict=True)
    )
    return Comparisons(receiver, round_, sender, sampled, selected)


def undone_words(count: int) -> str:
    """A warning that so many updates of a peer were undone."""
    return f"{count} update(s) undone, the loss was not a finite number"
