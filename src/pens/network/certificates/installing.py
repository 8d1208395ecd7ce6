# SPDX-License-Identifier: Apache-2.0
"""A member's side of getting a certificate: its request, and putting the answer in place.

The key of a request waits in a file of its own, so that a peer that runs, or is started again meanwhile, still finds
the pair that belongs together. It takes the old one's place when the answer is there and has been checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from pens.errors import CertificateError
from pens.network.certificates.authorities import Authorities, fingerprint, is_authority, subject_of
from pens.network.certificates.certificate import certificate_pem_of, identity_in, parse_certificate, public_key
from pens.network.certificates.credentials import Material, MemberFiles, check_material
from pens.network.certificates.key_files import key_pem_of, make_folder, parse_key, read_file, read_key, write_file
from pens.network.certificates.names import check_name
from pens.network.certificates.requests import make_request
from pens.network.certificates.revocations import RevocationLists, read_lists

_MOST_BYTES = 4 << 20
_LISTS = re.compile(rb"-----BEGIN X509 CRL-----")


def write_request(files: MemberFiles, name: str) -> ec.EllipticCurvePublicKey:
    """Write a request for a certificate of this name, and its key. A request that was not answered is written again."""
    check_name(name)
    make_folder(files.folder)
    if files.next_key.exists():
        key = parse_key(read_key(files.next_key), files.next_key)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
    request = make_request(name, key, _present(files, name))
    write_file(files.next_key, key_pem_of(key), 0o600)
    write_file(files.request(name), request, 0o644)
    return key.public_key()


def _present(files: MemberFiles, name: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None:
    """The certificate and key in place, if they are of this name."""
    if not (files.certificate.exists() and files.key.exists()):
        return None
    certificate = parse_certificate(read_file(files.certificate), files.certificate)
    key = parse_key(read_key(files.key), files.key)
    fits = subject_of(certificate) == name and key.public_key() == public_key(certificate)
    return (certificate, key) if fits else None


@dataclass(frozen=True, slots=True)
class Installed:
    """What is in place now."""

    material: Material | None
    """The certificate and its key; None: there were only authorities and lists in the answer."""
    new_authorities: tuple[x509.Certificate, ...]


def install(files: MemberFiles, answer: bytes, place: str, fingerprints: Collection[str] = ()) -> Installed:
    """Put an answer of the authority in place: a certificate, authorities, revocation lists, or some of these.

    `fingerprints`: of authorities that a person trusts from now on; those in place are trusted already.
    """
    certificates = _certificates(answer, place)
    authorities = _authorities(files, [c for c in certificates if is_authority(c)], place)
    new = _new_authorities(files, authorities, fingerprints, place)
    own = [c for c in certificates if not is_authority(c)]
    material = _material(files, own, authorities, place) if own else None
    if material is None and files.certificate.exists():  # what is in place must still be trusted afterwards
        check_material(
            read_file(files.certificate), read_key(files.key), authorities.pem, _Sources(files.folder, place)
        )
    if _LISTS.search(answer):
        _install_lists(files, answer, authorities, place)
    elif not files.revoked.exists():
        raise CertificateError(f"{place}: no revocation list, and there is none in {files.folder}: add revoked.pem")
    write_file(files.authority, authorities.pem, 0o644)
    if material is not None:
        write_file(files.key, material.key_pem, 0o600)  # at once followed by its certificate; next.key stays till then
        write_file(files.certificate, material.certificate_pem, 0o644)
        files.next_key.unlink(missing_ok=True)
    return Installed(material, new)


def _certificates(answer: bytes, place: str) -> list[x509.Certificate]:
    if len(answer) > _MOST_BYTES:
        raise CertificateError(f"{place}: {len(answer)} bytes, but an answer has at most {_MOST_BYTES}")
    if b"-----BEGIN CERTIFICATE-----" not in answer:
        if _LISTS.search(answer):
            return []
        raise CertificateError(
            f"{place}: neither a certificate nor a revocation list: `pens certs sign` writes what belongs here"
        )
    try:
        return x509.load_pem_x509_certificates(answer)
    except ValueError as error:
        raise CertificateError(f"{place}: not a certificate: {error}") from None


def _authorities(files: MemberFiles, sent: list[x509.Certificate], place: str) -> Authorities:
    if sent:
        return Authorities(b"".join(map(certificate_pem_of, sent)), place)
    if not files.authority.exists():
        raise CertificateError(
            f"{place}: no authority's certificate, and there is none in {files.folder}: install authority.pem first"
        )
    return Authorities(read_file(files.authority), str(files.authority))


def _new_authorities(
    files: MemberFiles, authorities: Authorities, fingerprints: Collection[str], place: str
) -> tuple[x509.Certificate, ...]:
    """Those that are not trusted here yet; each must be named by its fingerprint."""
    known: tuple[bytes, ...] = ()
    if files.authority.exists():
        known = Authorities(read_file(files.authority), str(files.authority)).ids
    new = tuple(c for number, c in zip(authorities.ids, authorities.certificates, strict=True) if number not in known)
    named = {text.replace(":", "").strip().lower() for text in fingerprints}
    for authority in new:
        if fingerprint(authority).replace(":", "").lower() not in named:
            raise CertificateError(
                f"{place}: the authority {subject_of(authority)} is not trusted here yet. Whoever sent this file could "
                "have put an authority of their own into it: ask the federation's operator, by telephone for "
                f"instance, whether its fingerprint is {fingerprint(authority)}. If it is, add "
                f"--fingerprint {fingerprint(authority)}"
            )
    return new


def _material(files: MemberFiles, own: list[x509.Certificate], authorities: Authorities, place: str) -> Material:
    """The certificate with the key that belongs to it: that of the request, or the one in use."""
    if len(own) > 1:
        names = ", ".join(map(subject_of, own))
        raise CertificateError(f"{place}: certificates of {len(own)} members ({names}), but one is needed")
    for path in (files.next_key, files.key):
        if path.exists():
            key = read_key(path)
            if parse_key(key, path).public_key() == public_key(own[0]):
                return _checked(files, own[0], key, authorities, place)
    raise CertificateError(
        f"{place}: the certificate of {subject_of(own[0])} is for another key than {files.next_key} or {files.key}: "
        "make a request with `pens certs request`, and have that signed"
    )


def _checked(files: MemberFiles, own: x509.Certificate, key: bytes, authorities: Authorities, place: str) -> Material:
    sources = _Sources(files.folder, place)
    material = check_material(certificate_pem_of(own), key, authorities.pem, sources)
    if files.certificate.exists():
        with suppress(ValueError):
            before = identity_in(x509.load_pem_x509_certificate(read_file(files.certificate))).name
            if before != material.identity.name:
                raise CertificateError(
                    f"{place}: the certificate of {material.identity.name}, but {files.folder} is that of {before}: "
                    "choose another folder with --dir"
                )
    return material


@dataclass(frozen=True, slots=True)
class _Sources(MemberFiles):
    """Where an answer comes from, for errors."""

    answer: str

    @property
    def authority(self) -> Path:
        return Path(self.answer)


def _install_lists(files: MemberFiles, answer: bytes, authorities: Authorities, place: str) -> None:
    """Write the newest list of each authority, of those sent and those in place."""
    lists = RevocationLists()
    lists.take(read_lists(answer, authorities, place))
    if files.revoked.exists():
        lists.take(read_lists(read_file(files.revoked), authorities, str(files.revoked), strangers=True))
    write_file(files.revoked, lists.pem, 0o644)
