# SPDX-License-Identifier: Apache-2.0
"""Names of members: which are allowed, and the number of each."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.errors import CertificateError
from pens.network.certificates.names import check_name, peer_id


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
