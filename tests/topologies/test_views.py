# SPDX-License-Identifier: Apache-2.0
"""Who may talk to whom, by hand."""

from __future__ import annotations

import pytest

from pens.protocol.messages import PeerId
from pens.topologies.views import Others


def test_others_are_all_members_but_one() -> None:
    """A view of a group whose numbers have gaps, in ascending order."""
    members = (1, 4, 6, 9)
    assert list(Others(members, PeerId(1))) == [4, 6, 9]
    assert list(Others(members, PeerId(6))) == [1, 4, 9]
    assert list(Others(members, PeerId(9))) == [1, 4, 6]
    assert len(Others(members, PeerId(6))) == 3
    assert len(Others((7,), PeerId(7))) == 0


def test_others_are_reached_by_place() -> None:
    others = Others((1, 4, 6, 9), PeerId(4))
    assert [others[place] for place in (0, 1, 2, -1, -2, -3)] == [1, 6, 9, 9, 6, 1]
    assert others[1:] == [6, 9]
    assert others[::2] == [1, 9]
    for place in (3, -4):
        with pytest.raises(IndexError):
            others[place]


def test_a_peer_is_no_other_of_its_own_and_neither_is_a_stranger() -> None:
    others = Others((1, 4, 6, 9), PeerId(4))
    assert [peer in others for peer in (0, 1, 2, 4, 5, 6, 9, 10)] == [
        False,
        True,
        False,
        False,
        False,
        True,
        True,
        False,
    ]
    assert not others.__contains__("1")
    assert 1.0 not in others
