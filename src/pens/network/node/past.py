# SPDX-License-Identifier: Apache-2.0
"""The history of a real peer, and the records of it that the peer leaves on disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pens.data.samples import Array
from pens.learning.curves import UpdateRecord
from pens.learning.learners import Learners
from pens.learning.ledger import Ledger
from pens.network.node.learning import Learning
from pens.network.node.state import Records
from pens.protocol.messages import PeerId


@dataclass
class Past:
    """The part of a peer's history that neither the peer nor its learners count."""

    seconds: float = 0.0
    """Length of earlier lives."""
    completed: list[float] = field(default_factory=list)
    """When each version of the model was complete, in seconds of all lives."""
    received: list[int] = field(default_factory=list)
    """How many models had been received when each update began."""
    lives: int = 0


def compose_records(learning: Learning, past: Past, names: Mapping[PeerId, str], result: Mapping[str, Any]) -> Records:
    """The records that go to disk for others to read."""
    learners = learning.learners
    return Records(
        result=result,
        pairs=_pairs(learners, learning.me, names),
        history=_history(learners, past),
        comparisons=_comparisons(learners.comparisons, names),
        models=learning.tested_model(),
    )


def _name(peer: PeerId, names: Mapping[PeerId, str]) -> str:
    return names.get(peer, str(peer))


def _pairs(learners: Learners, me: PeerId, names: Mapping[PeerId, str]) -> dict[str, dict[str, int]]:
    learner = learners.by_peer[me]
    merges, tally = learner.merges, learner.tally
    counters = {"merged": merges, "selected": tally.selected, "sampled": tally.sampled}
    met = sorted({*merges, *tally.sampled})
    return {_name(peer, names): {what: counts[peer] for what, counts in counters.items()} for peer in met}


def _comparisons(ledger: Ledger, names: Mapping[PeerId, str]) -> dict[str, Array] | None:
    """How often the models of each sender were sampled and selected, by round."""
    columns = [ledger.column(name).tolist() for name in ("round", "sender", "chosen")]
    sampled: Counter[tuple[int, PeerId]] = Counter()
    selected: Counter[tuple[int, PeerId]] = Counter()
    for round_, sender, chosen in zip(*columns, strict=True):
        sampled[round_, sender] += 1
        selected[round_, sender] += chosen
    keys = sorted(sampled)
    if not keys:
        return None
    return {
        "round": np.array([round_ for round_, _ in keys], np.int64),
        "sender": np.array([_name(sender, names) for _, sender in keys]),
        "sampled": np.array([sampled[key] for key in keys], np.int64),
        "selected": np.array([selected[key] for key in keys], np.int64),
    }


def _history(learners: Learners, past: Past) -> dict[str, Array]:
    """The columns of `results.History`; the only peer is number 0."""
    columns = {name: learners.history.column(name) for name in UpdateRecord._fields}
    versions = columns["version"].astype(np.int64)
    types = {"searching": np.bool_, "merged": np.int64, "epochs": np.int64}
    return {
        **{name: column.astype(types.get(name, np.float64)) for name, column in columns.items()},
        "time": np.array(past.completed, np.float64)[versions - 1],
        "peer": np.zeros(len(versions), np.int64),
        "version": versions,
        "received": np.array(past.received, np.int64)[versions - 1],
    }
