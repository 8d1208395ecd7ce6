# SPDX-License-Identifier: Apache-2.0
"""Which versions of a member's model are refused."""

from __future__ import annotations

import json

import pytest

from pens.network.node.versions import LARGEST, Versions


def test_versions_advance_and_the_same_model_may_come_again() -> None:
    versions = Versions()
    for version, payload in ((3, b"c"), (3, b"c"), (9, b"d"), (9, b"d"), (LARGEST, b"e")):
        assert versions.refusal("a", 1, version, payload) is None


@pytest.mark.parametrize(
    ("version", "payload", "why"),
    [
        (2, b"c", "version 2 is old: it has sent 3 before"),
        (3, b"d", "version 3 is repeated with another model"),
        (0, b"c", "version 0 is absurd"),
        (LARGEST + 1, b"c", "version 1000001 is absurd: versions count updates, from 1 to 1,000,000"),
    ],
)
def test_old_repeated_and_absurd_versions_are_refused_and_change_nothing(
    version: int, payload: bytes, why: str
) -> None:
    versions = Versions()
    assert versions.refusal("a", 5, 3, b"c") is None
    before = versions.state()
    assert (versions.refusal("a", 5, version, payload) or "").startswith(why)
    assert versions.state() == before
    assert versions.refusal("b", 5, 1, b"c") is None  # each member by itself


def test_a_member_that_lost_its_state_begins_anew_once_it_was_started_again() -> None:
    versions = Versions()
    assert versions.refusal("a", 5, 300, b"c") is None
    assert versions.refusal("a", 6, 1, b"d") is None
    assert versions.refusal("a", 6, 1, b"e")
    assert versions.refusal("a", 5, 1, b"e")


def test_versions_are_kept_over_a_restart() -> None:
    versions, later = Versions(), Versions()
    assert versions.refusal("a", 5, 3, b"c") is None
    later.restore(json.loads(json.dumps(versions.state())))
    assert later.refusal("a", 5, 2, b"b")
    assert later.refusal("a", 5, 3, b"b")
    assert later.refusal("a", 5, 3, b"c") is None
