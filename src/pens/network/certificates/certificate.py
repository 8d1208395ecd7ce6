# SPDX-License-Identifier: Apache-2.0
"""One certificate: whose it is."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pens.errors import CertificateError
from pens.network.certificates.names import check_name, exact_dns_name


@dataclass(frozen=True, slots=True)
class Identity:
    """The name, serial number and end of a member's certificate, which TLS or `load_credentials` has checked."""

    name: str
    serial: int
    not_after: datetime

    @property
    def dns_name(self) -> str:
        """The DNS name for which this certificate alone is valid."""
        return exact_dns_name(self.name, self.serial)


@lru_cache(maxsize=1024)
def certificate_of(certificate_pem: bytes) -> x509.Certificate:
    """A certificate from its text."""
    try:
        return x509.load_pem_x509_certificate(certificate_pem)
    except ValueError as error:
        raise CertificateError(f"not a certificate: {error}") from None


@lru_cache(maxsize=1024)
def identity_of(certificate_pem: bytes) -> Identity:
    """The identity in a certificate whose signature has been checked already."""
    return identity_in(certificate_of(certificate_pem))


def identity_in(certificate: x509.Certificate) -> Identity:
    """The identity in a member's certificate; `CertificateError` if it is not one that `pens certs issue` makes."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise CertificateError(f"the certificate has {len(names)} common names, not 1")
    name = check_name(str(names[0].value))
    if exact_dns_name(name, certificate.serial_number) not in _dns_names(certificate):
        raise CertificateError(f"the certificate of {name} is not that of a member: `pens certs issue` did not make it")
    return Identity(name, certificate.serial_number, certificate.not_valid_after_utc)


def _dns_names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def parse_certificate(pem: bytes, path: Path) -> x509.Certificate:
    """The certificate in the content of the file at `path`."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise CertificateError(f"{path}: not a certificate: {error}") from None
    public_key(certificate)
    return certificate


def certificate_pem_of(certificate: x509.Certificate) -> bytes:
    """A certificate as the content of a file."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def public_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate, which must be on the curve P-256."""
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError(
            "the certificate's key is not on the curve P-256: make keys and certificates with `pens certs`"
        )
    return key
