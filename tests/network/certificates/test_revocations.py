# SPDX-License-Identifier: Apache-2.0
"""The list of the revoked is followed, and only one that the authority signed is believed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pens.network.certificates.authority import Authority
from pens.network.certificates.revocations import RevocationList
from tests.network.federations import credentials, make_federation


def test_a_list_of_the_revoked_is_followed_but_only_forward_and_only_if_the_authority_signed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = make_federation(tmp_path / "ours", "alice", "bob")
    others = make_federation(tmp_path / "theirs", "alice")
    others.revoke("alice")
    alice, bob = (credentials(authority, name).identity.serial for name in ("alice", "bob"))
    path = tmp_path / "list.pem"
    empty = authority.revoked_file.read_bytes()
    path.write_bytes(empty)
    revoked = RevocationList(path, (authority.folder / "authority.pem").read_bytes())
    assert alice not in revoked
    authority.revoke("alice")
    path.write_bytes(authority.revoked_file.read_bytes())
    assert alice in revoked
    assert bob not in revoked
    ended = _signed_list(authority, number=9, end=datetime.now(UTC) - timedelta(days=1))
    for bad in (others.revoked_file.read_bytes(), empty, b"nonsense", b"", ended, None):
        caplog.clear()
        path.unlink() if bad is None else path.write_bytes(bad)
        with caplog.at_level(logging.ERROR, "pens.network"):
            assert alice in revoked
            assert bob not in revoked
        assert len(caplog.records) == 1, "said once"
    authority.revoke("bob")
    path.write_bytes(authority.revoked_file.read_bytes())
    assert bob in revoked


def _signed_list(authority: Authority, number: int, end: datetime) -> bytes:
    """A list that nobody's command would sign."""
    root = x509.load_pem_x509_certificate((authority.folder / "authority.pem").read_bytes())
    key = serialization.load_pem_private_key((authority.folder / "authority.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateRevocationListBuilder().issuer_name(root.subject)
    builder = builder.last_update(end - timedelta(days=1)).next_update(end)
    builder = builder.add_extension(x509.CRLNumber(number), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
