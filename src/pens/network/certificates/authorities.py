# SPDX-License-Identifier: Apache-2.0
"""The authorities that a member trusts: one, or two while a new one takes the place of an old one."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import NameOID

from pens.errors import CertificateError
from pens.network.certificates.certificate import public_key

MAX_AUTHORITIES = 4
KEY_ID_BYTES = 20
_CACHED = 4096  # certificates whose issuer is known


class Authorities:
    """Certificates of authorities, in the order of their file. Each is known by its key: names may be the same."""

    def __init__(self, pem: bytes, place: str) -> None:
        self.pem = pem
        self.certificates = _read_bundle(pem, place)
        self._by_id = {key_id(certificate): certificate for certificate in self.certificates}
        self._issuers: dict[bytes, x509.Certificate | None] = {}

    def find(self, number: bytes) -> x509.Certificate | None:
        """The authority whose key has this number (`key_id`)."""
        return self._by_id.get(number)

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The numbers of the authorities' keys."""
        return tuple(self._by_id)

    def issuer_of(self, certificate: x509.Certificate) -> x509.Certificate | None:
        """The authority that signed a certificate; None if it is none of these."""
        known = certificate.fingerprint(hashes.SHA256())
        if known not in self._issuers:
            if len(self._issuers) >= _CACHED:
                self._issuers.clear()
            signers = (authority for authority in self.certificates if _has_signed(authority, certificate))
            self._issuers[known] = next(signers, None)
        return self._issuers[known]


def key_id(authority: x509.Certificate) -> bytes:
    """A number for an authority's key: two authorities of a federation have the same name, but not the same key."""
    return x509.SubjectKeyIdentifier.from_public_key(public_key(authority)).digest


def fingerprint(authority: x509.Certificate) -> str:
    """What people compare before they trust an authority: as `openssl x509 -noout -fingerprint -sha256` prints it."""
    return authority.fingerprint(hashes.SHA256()).hex(":").upper()


def title(authority: x509.Certificate) -> str:
    """An authority in words: its name, and the beginning of its fingerprint."""
    return f"{subject_of(authority)} {fingerprint(authority)[:11]}"


def subject_of(certificate: x509.Certificate) -> str:
    """The common name in a certificate, or all that stands in its place."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else certificate.subject.rfc4514_string() or "?"


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether a certificate is one that may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, ValueError):
        return False


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _read_bundle(pem: bytes, place: str) -> tuple[x509.Certificate, ...]:
    try:
        certificates = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise CertificateError(f"{place}: not a certificate: {error}") from None
    if pem.count(b"-----BEGIN CERTIFICATE-----") != len(certificates):
        raise CertificateError(f"{place}: the last certificate is cut off: copy the file again")
    if len(certificates) > MAX_AUTHORITIES:
        raise CertificateError(
            f"{place}: {len(certificates)} authorities, but at most {MAX_AUTHORITIES} can be trusted at a time: "
            "remove those that no member's certificate needs"
        )
    for certificate in certificates:
        _check_authority(certificate, place)
    return tuple({key_id(certificate): certificate for certificate in certificates}.values())


def _check_authority(certificate: x509.Certificate, place: str) -> None:
    public_key(certificate)
    if not is_authority(certificate) or not _has_signed(certificate, certificate):
        raise CertificateError(
            f"{place}: the certificate of {subject_of(certificate)} is not that of an authority: put the federation's "
            "authority.pem here, and no member's certificate"
        )
