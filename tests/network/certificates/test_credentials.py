# SPDX-License-Identifier: Apache-2.0
"""A member's own files: refused where they do not belong together or have ended, also while it runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pens.errors import CertificateError
from pens.network.certificates.certificate import certificate_pem_of, parse_certificate
from pens.network.certificates.credentials import MemberFiles, load_credentials
from pens.network.certificates.issuing import authority_certificate, end_after
from pens.network.certificates.key_files import write_file
from tests.network.federations import credentials, issue_expired, make_federation


def five_authorities() -> bytes:
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(5)]
    return b"".join(certificate_pem_of(authority_certificate("x", end_after(1), key)) for key in keys)


def signed_by_itself() -> bytes:
    """A certificate that may sign no others."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(datetime.now(UTC)).not_valid_after(end_after(1))
    return certificate_pem_of(builder.sign(key, hashes.SHA256()))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda files, others: files.revoked.write_bytes(others.revoked.read_bytes()), "none of the authorities"),
        (lambda files, others: files.revoked.unlink(), "revoked.pem: there is no such file"),
        (lambda files, others: files.authority.write_bytes(others.authority.read_bytes()), "another authority"),
        (lambda files, others: files.certificate.write_bytes(others.certificate.read_bytes()), "another authority"),
        (lambda files, others: files.certificate.write_bytes(files.authority.read_bytes()), "not"),
        (lambda files, others: files.key.write_bytes(others.key.read_bytes()), "is not the key of"),
        (lambda files, others: files.key.write_bytes(b"?"), "not a key"),
        (lambda files, others: files.certificate.write_bytes(b"?"), "not a certificate"),
        (
            lambda files, others: files.certificate.write_bytes(files.certificate.read_bytes()[:300]),
            "not a certificate",
        ),
        (lambda files, others: files.authority.write_bytes(files.certificate.read_bytes()), "not that of an authority"),
        (lambda files, others: files.authority.write_bytes(signed_by_itself()), "not that of an authority"),
        (lambda files, others: files.authority.write_bytes(2 * files.authority.read_bytes()[:-40]), "a certificate"),
        (lambda files, others: files.authority.write_bytes(five_authorities()), "5 authorities, but at most 4"),
        (lambda files, others: files.key.chmod(0o640), "chmod 600"),
        (
            lambda files, others: files.key.unlink(),
            "no such file. A member needs peer.pem",
        ),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path: Path, break_it: object, message: str) -> None:
    files = MemberFiles(make_federation(tmp_path / "ours", "alice").folder / "peers" / "alice")
    others = MemberFiles(make_federation(tmp_path / "theirs", "alice").folder / "peers" / "alice")
    break_it(files, others)  # type: ignore[operator]
    with pytest.raises(CertificateError, match=message):
        load_credentials(files.folder)


def test_a_certificate_that_has_ended_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="ended"):
        load_credentials(issue_expired(make_federation(tmp_path), "alice"))


def test_a_new_pair_is_taken_as_a_whole_and_half_of_one_is_refused(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice")
    files = MemberFiles(tmp_path / "peers" / "alice")
    own = load_credentials(files.folder)
    before, old_key = own.material, files.key.read_bytes()
    assert own.reload() == []
    assert own.material is before, "nothing is new, so that no connection is made anew"
    authority.issue("alice", force=True)
    new_key = files.key.read_bytes()
    write_file(files.key, old_key, 0o600)  # the new certificate came, the new key did not
    authority.refresh()
    with pytest.raises(CertificateError, match=r"peer.key is not the key of .*peer.pem: the two belong together"):
        own.reload()
    assert own.material is before
    assert own.lists.pem == files.revoked.read_bytes(), "a newer list is taken all the same"
    write_file(files.key, new_key, 0o600)
    (news,) = own.reload()
    assert news.startswith(f"certificate {own.identity.serial:x} until ")
    assert (own.identity.name, own.key_pem) == ("alice", new_key)
    assert own.identity.serial != before.identity.serial


def test_a_running_member_keeps_its_name_and_takes_no_certificate_that_is_revoked_or_over(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")
    alice, bob = (MemberFiles(tmp_path / "peers" / name) for name in ("alice", "bob"))
    own = load_credentials(alice.folder)
    before = own.material
    for source, target in ((bob.key, alice.key), (bob.certificate, alice.certificate)):
        write_file(target, source.read_bytes(), 0o600)
    with pytest.raises(CertificateError, match="the certificate of bob, but this member is alice"):
        own.reload()
    authority.issue("alice", force=True)
    authority.revoke("alice")
    with pytest.raises(CertificateError, match="has been revoked"):
        own.reload()
    issue_expired(authority, "carol")
    for name in ("peer.pem", "peer.key"):
        write_file(alice.folder / name, (tmp_path / "peers" / "carol" / name).read_bytes(), 0o600)
    with pytest.raises(CertificateError, match="carol"):
        own.reload()
    assert own.material is before


def test_two_authorities_are_told_apart_by_their_keys_and_leave_one_after_the_other(tmp_path: Path) -> None:
    authority = make_federation(tmp_path, "alice", "bob")
    own = credentials(authority, "alice")
    bob = parse_certificate(MemberFiles(tmp_path / "peers" / "bob").certificate.read_bytes(), tmp_path)
    assert own.trusts(bob)
    authority.rotate()
    assert [news.split()[0] for news in own.reload()] == ["authorities", "revocation", "revocation"]
    assert len(own.material.authorities.ids) == 2
    assert own.trusts(bob)
    for name in ("alice", "bob"):
        authority.issue(name, force=True)
    own.reload()
    assert own.trusts(bob)
    authority.finish_rotation()
    old = own.material.authorities.ids[1]
    assert own.lists.number(old) > 0
    own.reload()
    assert own.lists.number(old) == -1, "its list is forgotten, too"
    assert len(own.material.authorities.ids) == 1
    assert own.objection(bob) == ("authority", "no authority that we trust signed the certificate of bob")
