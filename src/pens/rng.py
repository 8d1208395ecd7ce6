# SPDX-License-Identifier: Apache-2.0
"""Named random streams: every random decision has a name, and its numbers depend on that name alone.

There is no global generator. `stream(seed, "peer", 3, 17)` gives the same numbers whoever asks, and however many peers
are computed together, in whatever order, before or after a resume. A checkpoint therefore holds counters, never a
generator's inner state.

Where decisions are many and small, `number` takes a stream's numbers one by one, without a generator.

For random numbers in bulk, where the tensors are, `pens.engine.bits` hashes such a key.
"""

from __future__ import annotations

import hashlib
import random

Name = int | str
_MASK64 = (1 << 64) - 1


def key(seed: int, *names: Name) -> int:
    """The 63-bit key of a named stream."""
    text = "\x1f".join([str(seed), *(f"{type(n).__name__[0]}{n}" for n in names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def stream(seed: int, *names: Name) -> random.Random:
    """A fresh generator for one named purpose."""
    return random.Random(key(seed, *names))


def number(key: int, place: int) -> float:
    """The number at a place of a stream, uniform in [0, 1): a hash of both (splitmix64)."""
    bits = (key + place * 0x9E3779B97F4A7C15) & _MASK64
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB & _MASK64
    return ((bits ^ bits >> 31) >> 11) * 2.0**-53
