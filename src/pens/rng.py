"""Named random streams: every random decision has a name, and its numbers depend on that name alone.

There is no global generator. `stream(seed, "peer", 3, 17)` gives the same numbers whoever asks, and however many peers
are computed together, in whatever order, before or after a resume. A checkpoint therefore holds counters, never a
generator's inner state.

For random numbers in bulk, where the tensors are, `pens.engine.bits` hashes such a key.
"""

from __future__ import annotations

import hashlib
import random

Name = int | str


def key(seed: int, *names: Name) -> int:
    """The 63-bit key of a named stream."""
    text = "\x1f".join([str(seed), *(f"{type(n).__name__[0]}{n}" for n in names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def stream(seed: int, *names: Name) -> random.Random:
    """A fresh generator for one named purpose."""
    return random.Random(key(seed, *names))
