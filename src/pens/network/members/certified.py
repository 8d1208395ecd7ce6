# SPDX-License-Identifier: Apache-2.0
"""Records signed by the keys of certificates: ECDSA with SHA-256 on the curve P-256."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from pens.errors import CertificateError
from pens.network.certificates.certificate import identity_in, public_key
from pens.network.certificates.credentials import Credentials
from pens.network.certificates.key_files import parse_key
from pens.network.members.notary import Verdict
from pens.network.transport.interface import MemberRecord

MOST_CERTIFICATES = 16_384
"""Certificates that are remembered, about 1.5 kB each; those that were used last."""
_ALGORITHM = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True, slots=True)
class _Known:
    """A certificate that an authority of the federation signed."""

    name: str
    point: bytes
    """Its public key. A key object would take several times the memory."""
    ends: datetime
    der: bytes


class CertificateNotary:
    """Signs with the key of this member's certificate, and checks by certificates of the federation's authorities."""

    def __init__(self, credentials: Credentials, most: int = MOST_CERTIFICATES) -> None:
        self._credentials, self._most = credentials, most
        self._key = parse_key(credentials.key_pem, Path("peer.key"))
        self._authorities = x509.load_pem_x509_certificates(credentials.authority_pem)
        self._known: OrderedDict[int, _Known] = OrderedDict()  # least recently used first
        own = x509.load_pem_x509_certificate(credentials.certificate_pem)
        self._own = own.public_bytes(serialization.Encoding.DER)
        self.learn(self._own)

    def sign(self, record: MemberRecord) -> MemberRecord:
        """This member's own record, with its signature."""
        record = replace(record, serial=self._credentials.identity.serial)
        return replace(record, signature=self._key.sign(record.content, _ALGORITHM))

    def check(self, record: MemberRecord) -> Verdict:
        """Whether the member that a record is about signed it."""
        known = self._known.get(record.serial)
        if known is None:
            return Verdict.UNKNOWN
        self._known.move_to_end(record.serial)
        if self.is_withdrawn(record.serial):
            return Verdict.WITHDRAWN
        if known.name != record.name:
            return Verdict.FORGED
        try:
            key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), known.point)
            key.verify(record.signature, record.content, _ALGORITHM)
        except InvalidSignature:
            return Verdict.FORGED
        return Verdict.GENUINE

    def learn(self, certificate: bytes) -> int | None:
        """Take a certificate if an authority of the federation signed it, and it has neither ended nor been revoked."""
        try:
            found = x509.load_der_x509_certificate(certificate)
            identity, key = identity_in(found), public_key(found)
        except (ValueError, CertificateError):
            return None
        if not any(_is_issued_by(found, authority) for authority in self._authorities):
            return None
        point = key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        self._known[identity.serial] = _Known(identity.name, point, identity.not_after, certificate)
        if self.is_withdrawn(identity.serial):
            del self._known[identity.serial]
            return None
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return identity.serial

    def certificate(self, serial: int) -> bytes | None:
        """A certificate to pass on; None if it is not known."""
        known = self._known.get(serial)
        return self._own if serial == self._credentials.identity.serial else known.der if known else None

    def is_withdrawn(self, serial: int) -> bool:
        """Whether a certificate has been revoked, or has ended."""
        revoked, known = self._credentials.revoked, self._known.get(serial)
        return (revoked is not None and serial in revoked) or (known is not None and known.ends <= datetime.now(UTC))


def _is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
