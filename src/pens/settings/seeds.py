# SPDX-License-Identifier: Apache-2.0
"""Reads seeds, as a number of seeds or as a list, from Python and from the command line."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Sequence

from pens.errors import SettingsError

MAX_SEEDS = 10_000
MAX_SEED = 2**63 - 1
_DIGITS = re.compile(r"[0-9]{1,40}")


def parse_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds that a number or a sequence stands for: 3 → (0, 1, 2); a sequence stands for itself."""
    if isinstance(seeds, int) and seeds > MAX_SEEDS:
        raise SettingsError(f"seeds = {seeds}: at most {MAX_SEEDS:,} seeds are run at once, list those that you want")
    try:
        chosen = (
            tuple(map(operator.index, seeds)) if isinstance(seeds, Iterable) else tuple(range(operator.index(seeds)))
        )
    except TypeError:
        chosen = ()
    if not chosen or len(set(chosen)) < len(chosen) or any(s < 0 for s in chosen):
        raise SettingsError(f"seeds = {seeds!r}: give a number of at least 1, or different seeds of at least 0")
    if len(chosen) > MAX_SEEDS:
        raise SettingsError(f"{len(chosen):,} seeds: at most {MAX_SEEDS:,} are run at once")
    if max(chosen) > MAX_SEED:
        raise SettingsError(f"seed {max(chosen)}: give seeds of at most {MAX_SEED}")
    return chosen


def read_seeds(text: str) -> tuple[int, ...]:
    """Seeds as typed: `4` is a number of seeds, 0 to 3; `1,2,3`, `0-3` and `5-5` are seeds."""
    if _DIGITS.fullmatch(text.strip()):
        return parse_seeds(int(text))
    chosen: list[int] = []
    for part in text.split(","):
        first, dash, last = (word.strip() for word in part.partition("-"))
        if not _DIGITS.fullmatch(first) or (dash and not _DIGITS.fullmatch(last)):
            raise SettingsError(
                f"--seeds {text}: give a number of seeds (4 means 0, 1, 2 and 3), seeds (1,2,3), or a range (0-3)"
            )
        begin, end = int(first), int(last or first)
        if end < begin:
            raise SettingsError(f"--seeds {text}: {part.strip()} is empty, write the smaller seed first")
        if len(chosen) + end - begin >= MAX_SEEDS:
            raise SettingsError(f"--seeds {text}: at most {MAX_SEEDS:,} seeds are run at once")
        chosen += range(begin, end + 1)
    return parse_seeds(chosen)
