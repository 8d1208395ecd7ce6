# SPDX-License-Identifier: Apache-2.0
"""Peers that train on what they are judged on are told; a few equal samples are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pens.data.leaks import leak
from pens.data.samples import Samples
from pens.data.scenarios import Federation, PeerData
from pens.experiment.holdings import Holdings
from pens.experiment.presets import preset
from pens.settings.tree import Settings


def numbered(*numbers: int) -> Samples:
    return Samples(np.array(numbers, np.float32)[:, None], np.zeros(len(numbers), np.int64))


def federation(val: Samples, test: Samples) -> Federation:
    """Of two peers that train on samples 0 to 19, the second with these validation and test samples."""
    train, other = numbered(*range(20)), numbered(*range(100, 110))
    return Federation((PeerData(train, other), PeerData(train, val)), None, (other, test))


def test_what_a_peer_is_judged_on_is_sought_among_its_training_samples() -> None:
    clean = numbered(*range(50, 60))
    assert leak(federation(clean, clean)) is None
    assert leak(federation(numbered(3, *range(50, 59)), clean)) is None  # one of ten is as many as may be
    told = leak(federation(numbered(3, 4, *range(50, 58)), clean))
    assert told is not None
    assert told.startswith("2 of the 10 validation samples of peer 1 are among its training samples")
    told = leak(federation(clean, numbered(*range(10))))
    assert told is not None
    assert told.startswith("10 of the 10 test samples of peer 1 ")


def test_the_same_inputs_with_another_target_are_another_sample() -> None:
    val = numbered(*range(10))
    assert leak(federation(replace(val, y=val.y + 1), numbered(*range(50, 60)))) is None


@pytest.mark.parametrize("peers", [1, 99, 100, 101, 1000])
def test_of_many_peers_some_are_looked_at(peers: int) -> None:
    train, other = numbered(1, 2), numbered(3)
    first = (PeerData(train, numbered(1)),)
    rest = (PeerData(train, other),) * (peers - 1)
    assert leak(Federation(first + rest, None, (other,) * peers))


def test_runs_are_told_of_it_where_others_divided_the_data() -> None:
    """Beside what else is odd: all samples of this federation are of one class. Our own partitions are trusted."""
    settings = preset("own").settings
    judged = federation(numbered(*range(10)), numbered(*range(50, 60)))
    told = Holdings(settings, judged, None).doubts(settings, 0)
    assert [words.partition(",")[0].partition(":")[0] for words in told] == [
        "all samples are of the class 0",
        "10 of the 10 validation samples of peer 1 are among its training samples",
    ]
    shared = Settings().replace({"source": "digits"})
    assert Holdings(shared, None, None).doubts(shared, 0) == []
