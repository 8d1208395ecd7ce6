# SPDX-License-Identifier: Apache-2.0
"""Names of members: which are allowed, and the number of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.errors import CertificateError
from pens.network.certificates.names import allowed_names, check_name, is_allowed, peer_id


@given(st.text(max_size=70))
def test_a_name_that_is_allowed_is_one_path_one_dns_name_and_one_word(name: str) -> None:
    try:
        check_name(name)
    except CertificateError:
        return
    assert Path(name).name == name
    assert name == name.lower()
    assert name.isascii()
    assert len(name) <= 63
    assert not any(character.isspace() for character in name)
    assert all(name.split("."))


@pytest.mark.parametrize("name", ["", "A", "a b", "a/b", "..", "a..b", ".a", "a-", "é", "a" * 64, "a\n", "*"])
def test_names_that_nobody_may_have(name: str) -> None:
    with pytest.raises(CertificateError, match="name"):
        check_name(name)


@given(st.text(), st.text())
def test_all_members_know_a_name_by_the_same_63_bits(one: str, other: str) -> None:
    assert 0 <= peer_id(one) < 1 << 63
    assert (peer_id(one) == peer_id(other)) == (one == other)


@given(st.lists(st.text(max_size=80), min_size=1, max_size=6, unique=True))
def test_every_peer_gets_a_name_of_its_own_that_is_allowed(names: list[str]) -> None:
    made = allowed_names(names)
    assert all(map(is_allowed, made))
    assert len(set(made)) == len(names)


def test_names_stay_as_much_as_they_can() -> None:
    assert allowed_names(["clinic-a", "Clinic B", "Süd/West"]) == ["clinic-a", "clinic-b", "sud-west"]
    assert allowed_names(["A b", "a b", "../../etc", "\x1b[31mred"]) == ["a-b-0", "a-b-1", "etc", "31mred"]
