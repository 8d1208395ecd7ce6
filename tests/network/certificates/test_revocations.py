# SPDX-License-Identifier: Apache-2.0
"""Revocation lists: only those that an authority signed count, only forward, and each authority has its own."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pens.errors import CertificateError
from pens.network.certificates import authority as authority_module
from pens.network.certificates.authorities import Authorities, key_id
from pens.network.certificates.authority import Authority
from pens.network.certificates.certificate import Identity, identity_in
from pens.network.certificates.credentials import Credentials, load_credentials
from pens.network.certificates.requests import make_request, read_request
from pens.network.certificates.revocations import LIST_BYTES, RevocationLists, SignedList, pem_of_lists, read_lists
from tests.network.federations import credentials, make_federation


def test_a_list_counts_only_if_an_authority_signed_it_and_only_forward(tmp_path: Path) -> None:
    authority = make_federation(tmp_path / "ours", "alice", "bob")
    others = make_federation(tmp_path / "theirs", "alice")
    others.revoke("alice")
    alice, bob = (credentials(authority, name).identity.serial for name in ("alice", "bob"))
    path = tmp_path / "list.pem"
    empty = authority.revoked_file.read_bytes()
    path.write_bytes(empty)
    own = load_credentials(authority.folder / "peers" / "bob", path)
    assert not own.is_revoked(alice)
    authority.revoke("alice")
    newest = authority.revoked_file.read_bytes()
    path.write_bytes(newest)
    assert [news.split()[:2] for news in own.reload()] == [["revocation", "list"]]
    for bad, message in (
        (others.revoked_file.read_bytes(), "none of the authorities .* signed"),
        (b"nonsense", "not a revocation list"),
        (b"", "not a revocation list"),
        (newest[:200], "cut off"),
        (newest + newest[:200], "cut off"),
        (None, "no such file"),
    ):
        path.unlink() if bad is None else path.write_bytes(bad)
        with pytest.raises(CertificateError, match=message):
            own.reload()
        assert [own.is_revoked(serial) for serial in (alice, bob)] == [True, False]
    path.write_bytes(empty)
    assert own.reload() == []
    assert own.is_revoked(alice), "an older list is not taken back"


def test_an_earlier_lifes_lists_are_remembered_and_a_torn_memory_is_told_of(tmp_path: Path) -> None:
    authority = make_federation(tmp_path / "certs", "alice", "bob")
    folder, memory = tmp_path / "certs" / "peers" / "alice", tmp_path / "revoked.pem"
    bob = credentials(authority, "bob").identity.serial
    older = authority.revoked_file.read_bytes()
    authority.revoke("bob")
    load_credentials(folder, authority.revoked_file, memory)
    authority.revoked_file.write_bytes(older)
    assert not load_credentials(folder, authority.revoked_file).is_revoked(bob)
    assert load_credentials(folder, authority.revoked_file, memory).is_revoked(bob)
    memory.write_bytes(b"torn")
    with pytest.raises(CertificateError, match="or delete"):
        load_credentials(folder, authority.revoked_file, memory)


def test_each_certificate_is_checked_against_the_list_of_its_own_authority(tmp_path: Path) -> None:
    """Worked out by hand: alice and bob of the old authority, carol and dora of the new; bob and dora are revoked."""
    authority = make_federation(tmp_path, "alice", "bob")
    authority.rotate()
    for name in ("carol", "dora"):
        authority.issue(name)
    for name in ("bob", "dora"):
        authority.revoke(name)
    own = credentials(authority, "alice")
    reasons = {name: _reason(own, authority, name) for name in ("alice", "bob", "carol", "dora")}
    assert reasons == {"alice": None, "bob": "revoked", "carol": None, "dora": "revoked"}
    new, old = own.material.authorities.certificates
    assert [len(own.lists.of(key_id(signer)).serials) for signer in (new, old)] == [1, 1]  # type: ignore[union-attr]
    assert own.trusts(_certificate(authority, "carol"))
    assert not own.trusts(_certificate(authority, "dora"))


def test_a_list_of_one_authority_does_not_revoke_certificates_of_another(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice")
    authority.rotate()
    own, serial = credentials(authority, "alice"), _certificate(authority, "alice").serial_number
    new = authority.certificates[0]
    der = signed_list(authority, 1 << 40, datetime.now(UTC) + timedelta(days=1), [serial])
    assert own.lists.receive(der, Authorities(own.authority_pem, "here"), "list")
    assert own.lists.of(key_id(new)).serials == {serial}  # type: ignore[union-attr]
    assert own.trusts(_certificate(authority, "alice"))


def test_an_authority_without_a_list_has_revoked_nobody_and_is_warned_of_after_a_month(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice")
    first = authority.revoked_file.read_bytes()
    authority.rotate()
    authority.issue("carol")
    (tmp_path / "peers" / "alice" / "revoked.pem").write_bytes(first)  # the old authority's list alone
    own = credentials(authority, "alice")
    assert own.trusts(_certificate(authority, "carol"))
    begins = authority.certificates[0].not_valid_before_utc
    term = next(term for term in own.terms() if term.kind == "revocation list")
    assert term.ends - begins == timedelta(days=30)


def test_after_its_grace_a_list_that_has_ended_refuses_its_authoritys_members_alone(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice")
    authority.rotate()
    authority.issue("carol")
    own, now = credentials(authority, "alice"), datetime.now(UTC)
    new = authority.certificates[0]
    ended = signed_list(authority, 1 << 40, now - timedelta(days=3), [])
    own.lists.receive(ended, Authorities(own.authority_pem, "here"), "list")
    for grace, reason in ((None, None), (4, None), (2, "list out of date")):
        own.list_grace = None if grace is None else timedelta(days=grace)
        assert _reason(own, authority, "carol") == reason
        assert _reason(own, authority, "alice") is None, "the other authority's list is valid"
        assert not own.all_lists_out_of_date()
    assert new == own.material.authorities.issuer_of(_certificate(authority, "carol"))


def test_lists_of_other_members_are_bounded_checked_and_only_news_once(tmp_path: Path) -> None:
    authority = make_federation(tmp_path / "ours", "alice")
    others = make_federation(tmp_path / "theirs")
    trusted = Authorities((authority.folder / "authority.pem").read_bytes(), "here")
    lists, end = RevocationLists(), datetime.now(UTC) + timedelta(days=1)
    newer = signed_list(authority, 1 << 40, end, [7])
    forged = bytearray(newer)
    forged[newer.index(b"pens") + 40] ^= 1
    for bad, message in (
        (b"", "not a revocation list"),
        (bytes(forged), "no authority that we trust|not a revocation list"),
        (signed_list(others, 1 << 41, end, []), "no authority that we trust"),
        (signed_list(authority, 1 << 63, end, []), "which must be 0 to"),
        (newer + bytes(LIST_BYTES), "at most"),
    ):
        with pytest.raises(CertificateError, match=message):
            lists.receive(bad, trusted, "list from bob")
        assert not lists.pem
    assert lists.receive(newer, trusted, "list from bob")
    assert lists.receive(newer, trusted, "list from bob") is None
    assert lists.receive(signed_list(authority, 1 << 39, end, [8]), trusted, "list from bob") is None
    assert [serial in lists for serial in (7, 8)] == [True, False]
    (number,) = trusted.ids
    assert lists.newer({number: (1 << 40) + 1}) == lists.newer({}) == []
    assert lists.newer({number: 1 << 40}) == [newer]


def test_numbers_grow_even_if_the_authority_comes_from_a_backup_and_lists_end_after_a_month(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice")
    backup = authority.revoked_file.read_bytes()
    numbers = [_only(authority).number]
    for _ in range(2):
        authority.refresh()
        numbers.append(_only(authority).number)
    authority.revoked_file.write_bytes(backup)
    assert numbers[0] < numbers[1] < numbers[2]
    assert abs(numbers[0] - datetime.now(UTC).timestamp()) < 60, "seconds since 1970, so that a backup is overtaken"
    assert timedelta(days=29) < authority.lists_end - datetime.now(UTC) < timedelta(days=31)
    assert timedelta(days=89) < authority.refresh(90) - datetime.now(UTC) < timedelta(days=91)


def test_what_was_revoked_is_listed_until_its_certificate_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = make_federation(tmp_path, "alice", "bob")
    bob = credentials(authority, "bob").identity.serial
    issued_before = authority.issued()
    authority.revoke("alice")
    authority.revoke("bob")
    assert len(_only(authority).serials) == 2
    assert [entry.identity.name for entry in issued_before] == ["alice", "bob"]
    path = next((tmp_path / "issued").glob("alice.*.pem"))
    _let_end(monkeypatch, path)
    authority.refresh()
    assert _only(authority).serials == {bob}


def _let_end(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let the certificate in this file have ended two days ago, as far as the authority can see."""
    serial = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
    over = datetime.now(UTC) - timedelta(days=2)

    def as_seen(certificate: x509.Certificate) -> Identity:
        identity = identity_in(certificate)
        return replace(identity, not_after=over) if identity.serial == serial else identity

    monkeypatch.setattr(authority_module, "identity_in", as_seen)


def _only(authority: Authority) -> SignedList:
    trusted = Authorities((authority.folder / "authority.pem").read_bytes(), "here")
    (signed,) = read_lists(authority.revoked_file.read_bytes(), trusted, "here")
    return signed


def _certificate(authority: Authority, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((authority.folder / "peers" / name / "peer.pem").read_bytes())


def _reason(own: Credentials, authority: Authority, name: str) -> str | None:
    objection = own.objection(_certificate(authority, name))
    return objection.reason if objection else None


def signed_list(authority: Authority, number: int, end: datetime, serials: list[int]) -> bytes:
    """A list that nobody's command would sign."""
    root = authority.certificates[0]
    key = serialization.load_pem_private_key((authority.folder / "authority.key").read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    builder = x509.CertificateRevocationListBuilder().issuer_name(root.subject)
    builder = builder.last_update(end - timedelta(days=1)).next_update(end)
    builder = builder.add_extension(x509.CRLNumber(number), critical=False)
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(end - timedelta(days=1))
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def test_a_file_may_have_lists_of_authorities_that_are_trusted_no_more(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice")
    authority.rotate()
    both = authority.revoked_file.read_bytes()
    new = authority.certificates[0]
    trusted = Authorities(new.public_bytes(serialization.Encoding.PEM), "here")
    assert [signed.authority for signed in read_lists(both, trusted, "here")] == [key_id(new)]
    all_trusted = Authorities((tmp_path / "authority.pem").read_bytes(), "here")
    old = [signed.der for signed in read_lists(both, all_trusted, "here")]
    with pytest.raises(CertificateError, match="none of the authorities"):
        read_lists(pem_of_lists(old[1:]), trusted, "here")


def test_a_list_that_cannot_be_kept_is_used_all_the_same(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = make_federation(tmp_path, "alice")
    memory = tmp_path / "gone" / "revoked.pem"
    own = load_credentials(tmp_path / "peers" / "alice", memory=memory)
    assert own.lists.pem
    assert "cannot be kept" in caplog.text
    assert authority.lists_end


def test_no_bytes_of_another_member_do_more_than_being_refused(tmp_path: Path) -> None:
    """Each byte of a list is replaced, and it is cut off at each place; a request is treated in the same way."""
    authority = make_federation(tmp_path, "alice")
    trusted = Authorities((tmp_path / "authority.pem").read_bytes(), "here")
    good = signed_list(authority, 1 << 40, datetime.now(UTC) + timedelta(days=1), [7])
    request = x509.load_pem_x509_csr(make_request("alice", ec.generate_private_key(ec.SECP256R1())))
    asked = request.public_bytes(serialization.Encoding.DER)

    def read_as_request(der: bytes) -> None:
        lines = b64encode(der)
        read_request(b"-----BEGIN CERTIFICATE REQUEST-----\n%s\n-----END CERTIFICATE REQUEST-----\n" % lines, "x")

    lists = RevocationLists()
    for der, read in ((good, lambda der: lists.receive(der, trusted, "list")), (asked, read_as_request)):
        for place in range(len(der)):
            for changed in (der[:place], der[:place] + bytes([der[place] ^ 0xFF]) + der[place + 1 :]):
                with pytest.raises(CertificateError):
                    read(changed)
    assert not lists.pem
