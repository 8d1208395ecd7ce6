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
from pens.network.certificates.credentials import OUT_OF_DATE, Credentials, Material
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
        self._known: OrderedDict[int, _Known] = OrderedDict()  # least recently used first
        self._use(credentials.material)

    def _use(self, material: Material) -> None:
        """Sign with this key from now on, and forget certificates of authorities that are no longer trusted."""
        self._material = material
        self._key = parse_key(material.key_pem, Path("peer.key"))
        self._own = material.certificate.public_bytes(serialization.Encoding.DER)
        before = [known.der for known in self._known.values()]
        self._known.clear()
        for certificate in (*before, self._own):
            self.learn(certificate)

    def _follow(self) -> None:
        if self._credentials.material is not self._material:
            self._use(self._credentials.material)

    def sign(self, record: MemberRecord) -> MemberRecord:
        """This member's own record, with its signature."""
        self._follow()
        record = replace(record, serial=self._credentials.identity.serial)
        return replace(record, signature=self._key.sign(record.content, _ALGORITHM))

    def check(self, record: MemberRecord) -> Verdict:
        """Whether the member that a record is about signed it."""
        self._follow()
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
        objection = self._credentials.objection(found)
        if objection and objection.reason != OUT_OF_DATE:  # a record is as true by an old list as by a new one
            return None
        point = key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        self._known[identity.serial] = _Known(identity.name, point, identity.not_after, certificate)
        if len(self._known) > self._most:
            self._known.popitem(last=False)
        return identity.serial

    def certificate(self, serial: int) -> bytes | None:
        """A certificate to pass on; None if it is not known."""
        known = self._known.get(serial)
        return self._own if serial == self._credentials.identity.serial else known.der if known else None

    def is_withdrawn(self, serial: int) -> bool:
        """Whether a certificate has been revoked, or has ended."""
        known = self._known.get(serial)
        return self._credentials.is_revoked(serial) or (known is not None and known.ends <= datetime.now(UTC))
