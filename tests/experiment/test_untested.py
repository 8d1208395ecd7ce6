# SPDX-License-Identifier: Apache-2.0
"""No method looks at test data before its end: other test data change its score, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import pens
from pens.data.samples import Samples
from pens.data.scenarios import Federation, Held, PeerData
from pens.measuring.results import RunResult
from pens.parts import METHODS
from pens.settings.tree import RunSettings
from tests.conftest import TINY, TinyNet

SMALL = {**TINY, "rounds": 2, "step1_rounds": 1, "central_rounds": 1, "epochs": 1, "compile": "never"}


class Curious(pens.Method):
    """It looks for test data where it is given the peers' data."""

    name = "curious"
    about = "looks at test data"

    def holders(self, federation: Held, settings: RunSettings) -> Sequence[PeerData]:
        tests = federation.tests  # type: ignore[attr-defined]
        return [PeerData(tests[0], peer.val) for peer in federation.peers]

    def data_sizes(self, federation: Held, settings: RunSettings) -> list[tuple[int, int]]:
        return [(len(peer.train), len(peer.val)) for peer in federation.peers]


def run_all(federation: Federation) -> dict[str, RunResult]:
    """A run of each of our methods; of those that need another setting than the others, none."""
    found: dict[str, RunResult] = {}
    for method in METHODS.built_in:
        try:
            result = pens.run(SMALL, methods=method, data=federation, model=TinyNet, progress=False, device="cpu")
        except pens.PensError:
            continue
        found[method] = result.run_of(method)
    return found


@pytest.mark.filterwarnings("ignore::pens.PensWarning")
def test_other_test_data_change_nothing_but_the_score(tiny_federation: Federation) -> None:
    others = tuple(Samples(-test.x, (test.y + 1) % 3) for test in tiny_federation.tests)
    plain, other = run_all(tiny_federation), run_all(replace(tiny_federation, tests=others))
    assert {"local", "random", "random+", "pens", "pens+", "oracle", "central", "dac", "fedavg"} <= set(plain)
    for method, one in plain.items():
        two = other[method]
        for name, values in one.history.columns().items():
            np.testing.assert_array_equal(values, two.history.columns()[name], err_msg=method)
        for name in one.models:
            np.testing.assert_array_equal(one.models[name], two.models[name], err_msg=method)
        assert one.neighbours == two.neighbours
        assert one.tested_forms == two.tested_forms
    assert any((plain[method].score != other[method].score).any() for method in plain)


def test_a_method_is_given_no_test_data(tiny_federation: Federation) -> None:
    with pytest.raises(AttributeError, match="tests"):
        pens.run(SMALL, methods=Curious, data=tiny_federation, model=TinyNet, progress=False, device="cpu")
