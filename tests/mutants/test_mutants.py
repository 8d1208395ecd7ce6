# SPDX-License-Identifier: Apache-2.0
"""The tool behind `make mutants`: the faults that it makes, and that they reach a function in memory alone."""

from __future__ import annotations

import pytest

from pens.protocol.messages import PeerId
from pens.protocol.policies import select_top_m
from tests.mutants.operators import mutants_of
from tests.mutants.runner import SOURCE, equivalents, exchange_code, path_of
from tests.mutants.targets import TARGETS

SNIPPET = '''
def rule(peer, counts):
    """A docstring stays as it is: 1 < 2."""
    if counts[peer] > 3 and not counts.done:
        raise ValueError("counts > 3")
    counts.reset()
    np.minimum(counts, 0)
    return min(counts.sent, -1)
'''


def test_faults_are_small_and_named() -> None:
    names = [mutant.name for mutant in mutants_of("snippet", SNIPPET)]
    assert all(name.startswith("snippet rule: `") for name in names)
    assert {name.removeprefix("snippet rule: ") for name in names} == {
        "`if counts[peer] > 3 and (not counts.done): …` → `pass`",
        "`counts[peer] > 3 and (not counts.done)` → `counts[peer] > 3 or not counts.done`",
        "`counts[peer] > 3 and (not counts.done)` → `not counts.done`",
        "`counts[peer] > 3 and (not counts.done)` → `counts[peer] > 3`",
        "`counts[peer] > 3` → `counts[peer] >= 3`",
        "`counts[peer] > 3` → `counts[peer] <= 3`",
        "`counts[peer]` → `counts[0]`",
        "`3` → `4`",
        "`not counts.done` → `counts.done`",
        "`counts.reset()` → `pass`",
        "`np.minimum(counts, 0)` → `pass`",
        "`0` → `1`",
        "`return min(counts.sent, -1)` → `return None`",
        "`min` → `max`",
        "`counts.sent` → `counts.received`",
        "`-1` → `1`",
        "`1` → `2`",
        "`1` → `0`",
    }


def test_a_fault_is_put_into_memory_alone() -> None:
    """SELECT_TOP_M takes all but the first m where its slice is turned round."""
    source = path_of("protocol.policies").read_text(encoding="utf-8")
    (fault,) = [
        m for m in mutants_of("protocol.policies", source, frozenset({"select_top_m"})) if "`:m` → `m:`" in m.name
    ]

    code = select_top_m.__code__
    try:
        exchange_code(fault.module, fault.function, fault.tree())
        assert select_top_m([PeerId(0), PeerId(1), PeerId(2)], [0.3, 0.1, 0.2], 1) == [2, 0]
    finally:
        select_top_m.__code__ = code
    assert select_top_m([PeerId(0), PeerId(1), PeerId(2)], [0.3, 0.1, 0.2], 1) == [1]
    assert path_of("protocol.policies").read_text(encoding="utf-8") == source


@pytest.mark.parametrize("module", list(TARGETS))
def test_targets_and_equivalent_faults_are_there(module: str) -> None:
    """The functions that are named exist, the tests, too, and no entry is about code that has changed."""
    target = TARGETS[module]
    names = {m.name for m in mutants_of(module, path_of(module).read_text(encoding="utf-8"), target.only)}
    assert names
    assert target.only <= {name.split(": ")[0].split()[1] for name in names}
    assert all((SOURCE.parent.parent / file).exists() for file in target.tests)
    out_of_date = [name for name, _ in equivalents() if name.split()[0] == module and name not in names]
    assert not out_of_date
    assert all(reason for _, reason in equivalents())
