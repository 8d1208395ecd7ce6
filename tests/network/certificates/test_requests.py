# SPDX-License-Identifier: Apache-2.0
"""A member makes its own key: what the authority signs of a request, and what a member installs of the answer."""

from __future__ import annotations

import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from pens.command_line.main import main
from pens.errors import CertificateError
from pens.network.certificates.authorities import fingerprint
from pens.network.certificates.authority import Authority
from pens.network.certificates.credentials import MemberFiles, load_credentials
from pens.network.certificates.installing import install, write_request
from pens.network.certificates.requests import make_request, read_request
from tests.network.federations import make_federation


def requested(folder: Path, name: str = "alice") -> tuple[MemberFiles, bytes]:
    """A member's folder with a request in it, and the request."""
    files = MemberFiles(folder)
    write_request(files, name)
    return files, files.request(name).read_bytes()


def answer_to(authority: Authority, request: bytes, force: bool = False) -> bytes:
    return authority.sign(read_request(request, "a request"), force=force)


def trusted(authority: Authority) -> list[str]:
    return [fingerprint(certificate) for certificate in authority.certificates]


def test_a_key_never_leaves_its_member_and_the_answer_is_one_file(tmp_path: Path) -> None:
    authority = make_federation(tmp_path / "certs")
    files, request = requested(tmp_path / "own")
    assert stat.S_IMODE(files.next_key.stat().st_mode) == 0o600
    answer = answer_to(authority, request)
    assert b"PRIVATE KEY" not in request + answer
    install(files, answer, "answer.pem", trusted(authority))
    own = load_credentials(files.folder)
    assert own.identity.name == "alice"
    assert not files.next_key.exists()
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600
    assert not list((tmp_path / "certs").rglob("peer.key"))


def test_until_the_answer_is_there_the_old_pair_stays_and_a_request_is_repeated_with_the_same_key(
    tmp_path: Path,
) -> None:
    authority = make_federation(tmp_path / "certs")
    files, request = requested(tmp_path / "own")
    install(files, answer_to(authority, request), "answer.pem", trusted(authority))
    old = load_credentials(files.folder)
    _, second = requested(files.folder)
    _, repeated = requested(files.folder)  # both signed with the key in use, too, so that nobody has to --force
    assert load_credentials(files.folder).identity == old.identity
    keys = [read_request(data, "x").key for data in (request, second, repeated)]
    assert keys[0] != keys[1] == keys[2]
    install(files, answer_to(authority, repeated), "answer.pem")  # its authority is trusted already
    assert old.reload()
    files.next_key.write_bytes(old.key_pem)  # killed before the last step: installing again repairs it
    files.next_key.chmod(0o600)
    for _ in range(2):  # then the key in use is the one that fits
        install(files, files.certificate.read_bytes(), "answer.pem")
        assert not files.next_key.exists()


def test_a_stranger_cannot_get_a_members_name_nor_a_revoked_key_come_back(tmp_path: Path) -> None:
    authority = make_federation(tmp_path / "certs", "bob")
    _, mine = requested(tmp_path / "own")
    answer_to(authority, mine)
    answer_to(authority, mine)  # the same key again: a renewal
    for name in ("alice", "bob"):
        _, theirs = requested(tmp_path / f"mallory-{name}", name)
        with pytest.raises(CertificateError, match=f"{name} has a certificate of another key until .*--force"):
            answer_to(authority, theirs)
    with pytest.raises(CertificateError, match="alice has a certificate already"):
        authority.issue("alice")
    authority.revoke("alice")
    with pytest.raises(CertificateError, match="a certificate of this key was revoked"):
        answer_to(authority, mine, force=True)
    _, anew = requested(tmp_path / "new")
    answer_to(authority, anew)


Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def test_only_the_key_of_a_members_good_certificate_renews_it_without_a_person(tmp_path: Path) -> None:
    authority, others = make_federation(tmp_path / "certs", "alice", "bob"), make_federation(tmp_path / "others", "bob")
    places = [(authority, "alice", "alice"), (authority, "alice", "bob"), (others, "bob", "bob")]
    new = ec.generate_private_key(ec.SECP256R1())
    good, of_another, forged = (
        read_request(make_request(name, new, present(MemberFiles(its.folder / "peers" / whose))), "x")
        for its, whose, name in places
    )
    for request in (of_another, forged):
        with pytest.raises(CertificateError, match=f"{request.name} has a certificate of another key .*did not sign"):
            authority.sign(request)
    bobs = present(MemberFiles(authority.folder / "peers" / "bob"))[0]
    with pytest.raises(CertificateError, match="did not sign the request"):  # bob's number and name, mallory's key
        authority.sign(read_request(make_request("bob", new, made_up(bobs)), "x"))
    authority.sign(good)
    authority.revoke("alice")
    with pytest.raises(CertificateError, match="of this key was revoked"):
        authority.sign(good)
    authority.issue("alice", force=True)
    with pytest.raises(CertificateError, match="of another key"):  # what it renews is revoked
        authority.sign(replace(good, key=KEY.public_key()))
    whole = make_request("bob", new, present(MemberFiles(authority.folder / "peers" / "bob")))
    proof = whole.index(b"-----BEGIN PENS RENEWAL-----")
    swapped = make_request("bob", KEY) + whole[whole.index(b"-----BEGIN CERTIFICATE-----") :]
    for bad in (swapped, whole[: proof + 40], whole[:proof] + whole[proof:].replace(b"M", b"N")):
        with pytest.raises(CertificateError, match="did not sign this request"):
            read_request(bad, "x")


def made_up(like: x509.Certificate) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate that says what another one says, but for a key of mallory's."""
    builder = x509.CertificateBuilder().subject_name(like.subject).issuer_name(like.issuer)
    builder = builder.public_key(KEY.public_key()).serial_number(like.serial_number)
    builder = builder.not_valid_before(like.not_valid_before_utc).not_valid_after(like.not_valid_after_utc)
    return builder.sign(KEY, hashes.SHA256()), KEY


def present(files: MemberFiles) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(files.certificate.read_bytes()), key


def signed(builder: x509.CertificateSigningRequestBuilder, key: Key) -> bytes:
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def named(*names: str) -> x509.CertificateSigningRequestBuilder:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    return x509.CertificateSigningRequestBuilder().subject_name(subject)


def not_its_own(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A request for mallory's name with alice's key, which mallory does not have: the signature is another one's."""
    good = x509.load_pem_x509_csr(make_request("alice", key)).public_bytes(serialization.Encoding.DER)
    other = bytearray(good.replace(b"alice", b"malic"))
    der = x509.load_der_x509_csr(bytes(other))
    return der.public_bytes(serialization.Encoding.PEM)


KEY = ec.generate_private_key(ec.SECP256R1())
BAD = {
    "not a request": (b"?", "`pens certs request NAME` makes one"),
    "a certificate": (b"-----BEGIN CERTIFICATE-----\nMII=\n-----END CERTIFICATE-----\n", "not a request"),
    "too long": (bytes(1 << 17), "131072 bytes, but a request has at most 65536"),
    "cut off": (make_request("alice", KEY)[:100], "not a request"),
    "not proven": (not_its_own(KEY), "not signed with its own key"),
    "no name": (signed(named(), KEY), "0 common names, not 1"),
    "two names": (signed(named("alice", "bob"), KEY), "2 common names, not 1"),
    "upper case": (signed(named("Alice"), KEY), "lower-case letters"),
    "a path": (signed(named("../alice"), KEY), "lower-case letters"),
    "another curve": (signed(named("alice"), ec.generate_private_key(ec.SECP384R1())), "not on the curve P-256"),
    "RSA": (signed(named("alice"), rsa.generate_private_key(65537, 2048)), "not on the curve P-256"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_request_that_is_not_signed_is_refused_in_words(what: str) -> None:
    data, words = BAD[what]
    with pytest.raises(CertificateError, match=words):
        read_request(data, "alice.csr")


def test_host_names_of_a_request_are_not_taken_from_it(tmp_path: Path) -> None:
    reserved = "bob.1.serial.pens.internal"
    extension = x509.SubjectAlternativeName([x509.DNSName(reserved), x509.DNSName("a.example.org")])
    data = signed(named("alice").add_extension(extension, critical=False), KEY)
    authority = make_federation(tmp_path)
    request = read_request(data, "alice.csr")
    assert request.hosts == (reserved, "a.example.org")
    own = x509.load_pem_x509_certificates(authority.sign(request, ["a.example.org"]))[0]
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)
    assert reserved not in names
    assert "a.example.org" in names
    with pytest.raises(CertificateError, match="it must be a DNS name"):
        authority.sign(request, [reserved])


def test_an_authority_is_trusted_only_after_a_person_compared_its_fingerprint(tmp_path: Path) -> None:
    ours, theirs = make_federation(tmp_path / "ours"), make_federation(tmp_path / "theirs")
    files, request = requested(tmp_path / "own")
    with pytest.raises(CertificateError, match=r"not trusted here yet(?s:.)*--fingerprint ([0-9A-F]{2}:){31}"):
        install(files, answer_to(theirs, request), "answer.pem", trusted(ours))
    assert not files.authority.exists()
    install(files, answer_to(ours, request), "answer.pem", [name.lower().replace(":", "") for name in trusted(ours)])
    ours.rotate()
    bundle = (ours.folder / "authority.pem").read_bytes() + ours.revoked_file.read_bytes()
    with pytest.raises(CertificateError, match="not trusted here yet"):
        install(files, bundle, "authority.pem")
    installed = install(files, bundle, "authority.pem", trusted(ours)[:1])
    assert installed.material is None
    assert len(load_credentials(files.folder).material.authorities.ids) == 2


def test_answers_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    authority = make_federation(tmp_path / "certs", "bob")
    files, request = requested(tmp_path / "own")
    install(files, answer_to(authority, request), "answer.pem", trusted(authority))
    others = MemberFiles(tmp_path / "certs" / "peers" / "bob")
    _, second = requested(files.folder)
    third, request_3 = requested(tmp_path / "third", "carol")
    moved = answer_to(authority, request_3)
    before = {path: path.read_bytes() for path in files.folder.iterdir()}
    for data, words in (
        (b"", "neither a certificate nor a revocation list"),
        (others.certificate.read_bytes(), "is for another key than"),
        (answer_to(authority, second, force=True) + others.certificate.read_bytes(), "certificates of 2 members"),
        (answer_to(authority, second, force=True)[:400], "not a certificate"),
        (bytes(5 << 20), "at most"),
    ):
        with pytest.raises(CertificateError, match=words):
            install(files, data, "answer.pem")
    files.next_key.write_bytes(third.next_key.read_bytes())
    with pytest.raises(CertificateError, match=r"the certificate of carol, but .* is that of alice"):
        install(files, moved, "answer.pem")
    files.next_key.write_bytes(before[files.next_key])
    assert {path: path.read_bytes() for path in files.folder.iterdir()} == before


@pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
def test_openssl_and_pens_read_each_others_requests(tmp_path: Path) -> None:
    _, request = requested(tmp_path)
    (tmp_path / "ours.csr").write_bytes(request)
    command = ["openssl", "req", "-verify", "-noout", "-subject", "-in", str(tmp_path / "ours.csr")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "alice" in done.stdout
    theirs = tmp_path / "theirs.csr"
    command = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(tmp_path / "theirs.key"), "-subj", "/O=Clinic/CN=bob", "-out", str(theirs)]
    subprocess.run(command, capture_output=True, check=True)
    assert read_request(theirs.read_bytes(), "theirs.csr").name == "bob"


def pens(*arguments: str | Path) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return int(end.value.code or 0)


def test_from_a_request_to_a_certificate_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert pens("certs", "init", "--dir", "authority") == 0
    told = capsys.readouterr().out
    known = told.partition("fingerprint: ")[2].split()[0]
    assert pens("certs", "request", "alice", "--dir", "own") == 0
    asked = capsys.readouterr().out
    assert pens("certs", "sign", "own/alice.csr", "--dir", "authority") == 0
    answered = capsys.readouterr().out
    assert asked.partition("its key: ")[2] == answered.partition("its key: ")[2]
    assert pens("certs", "install", "own/alice.pem", "--dir", "own") == 2
    assert f"--fingerprint {known}" in " ".join(capsys.readouterr().err.split())
    assert pens("certs", "install", "own/alice.pem", "--dir", "own", "--fingerprint", known) == 0
    assert load_credentials(tmp_path / "own").identity.name == "alice"
    assert pens("certs", "refresh", "--dir", "authority", "--days", "7") == 0
    assert pens("certs", "install", "authority/revoked.pem", "--dir", "own") == 0
    assert (tmp_path / "own" / "revoked.pem").read_bytes() == (tmp_path / "authority" / "revoked.pem").read_bytes()
    assert pens("certs", "rotate", "--dir", "authority") == 0
    assert pens("certs", "rotate", "--dir", "authority") == 2
    assert pens("certs", "show", "--dir", "authority") == 0
    assert "old authority" in " ".join(capsys.readouterr().out.split())
    assert pens("certs", "rotate", "--finish", "--dir", "authority") == 2
    assert "alice" in capsys.readouterr().err
    assert pens("certs", "rotate", "--finish", "--force", "--dir", "authority") == 0
    assert pens("certs", "show", "--dir", "authority") == 0
    assert "former" in capsys.readouterr().out


def test_an_authority_that_did_not_sign_the_certificate_in_place_does_not_replace_the_one_that_did(
    tmp_path: Path,
) -> None:
    authority = make_federation(tmp_path / "certs")
    files, request = requested(tmp_path / "own")
    install(files, answer_to(authority, request), "answer.pem", trusted(authority))
    authority.rotate()
    authority.finish_rotation(force=True)
    bundle = (authority.folder / "authority.pem").read_bytes() + authority.revoked_file.read_bytes()
    before = {path: path.read_bytes() for path in files.folder.iterdir()}
    with pytest.raises(CertificateError, match=r"peer.pem: signed by another authority than pens .* in authority.pem"):
        install(files, bundle, "authority.pem", trusted(authority))
    assert {path: path.read_bytes() for path in files.folder.iterdir()} == before
    with pytest.raises(CertificateError, match="lower-case"):
        write_request(MemberFiles(tmp_path / "other"), "Alice")
    assert not (tmp_path / "other").exists()
