# SPDX-License-Identifier: Apache-2.0
"""Whether peers are validated or tested on samples that they train on, in data that others divided.

A data set may hold a sample twice, so a few of them are no reason to complain. Samples are compared byte by byte, as
the peer has them.
"""

from __future__ import annotations

from pens.data.samples import Samples
from pens.data.scenarios import Federation

_SHARE = 0.1
"""Of the validation or test samples: more of them among the training samples are no chance."""
_PEERS = 100
"""How many peers are looked at, at the most."""


def leak(federation: Federation) -> str | None:
    """The first peer that trains on what it is validated or tested on, in words; None where none does."""
    for number in range(0, len(federation.peers), -(-len(federation.peers) // _PEERS)):
        peer = federation.peers[number]
        known = set(_marks(peer.train))
        judged = ("validation", peer.val), ("test", federation.tests[federation.tested_on[number]])
        for what, samples in judged:
            seen = sum(mark in known for mark in _marks(samples))
            if seen > _SHARE * len(samples):
                return (
                    f"{seen} of the {len(samples)} {what} samples of peer {federation.name_of(number)} are among its "
                    "training samples, so that results are too good: give each sample to one of the three parts"
                )
    return None


def _marks(samples: Samples) -> list[int]:
    """A number for each sample, which equal samples have alike."""
    return [hash((x.tobytes(), y.tobytes())) for x, y in zip(samples.x, samples.y, strict=True)]
