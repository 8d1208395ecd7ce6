# SPDX-License-Identifier: Apache-2.0
"""Certificates and revocation lists as the authority signs them."""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pens.errors import CertificateError
from pens.network.certificates.names import ANY_MEMBER, RESERVED, exact_dns_name, is_reserved
from pens.printable import printable

_CLOCKS_DIFFER = timedelta(minutes=5)  # between members: a new certificate works at once everywhere


def authority_certificate(federation: str, end: datetime, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """The authority's certificate, signed with its own key; it can sign those of members."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, federation)])
    builder = _builder(subject, subject, key.public_key(), end, x509.random_serial_number())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage("key_cert_sign", "crl_sign"), critical=True)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())


def member_certificate(
    name: str,
    hosts: Sequence[str],
    end: datetime,
    own_key: ec.EllipticCurvePublicKey,
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    """A member's certificate for its `own_key`, signed with the authority's `key`."""
    serial = x509.random_serial_number()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, authority.subject, own_key, end, serial)
    names = [ANY_MEMBER, f"{name}.peer.pens.internal", exact_dns_name(name, serial)]
    san = x509.SubjectAlternativeName([*map(x509.DNSName, names), *map(_general_name, hosts or ("localhost",))])
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(san, critical=False)
    builder = builder.add_extension(usages, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage("digital_signature"), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(own_key), critical=False)
    return builder.add_extension(_signer(authority), critical=False).sign(key, hashes.SHA256())


def signed_revocations(
    authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, number: int, serials: Sequence[int], end: datetime
) -> bytes:
    """A revocation list (DER) of this number, valid until `end`, but no longer than the authority."""
    now = datetime.now(UTC)
    end = max(min(end, authority.not_valid_after_utc), now + timedelta(seconds=1))
    builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
    builder = builder.last_update(now).next_update(end)
    builder = builder.add_extension(x509.CRLNumber(number), critical=False)
    builder = builder.add_extension(_signer(authority), critical=False)
    for serial in serials:
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, end: datetime, serial: int
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key).serial_number(serial)
    return builder.not_valid_before(min(datetime.now(UTC), end) - _CLOCKS_DIFFER).not_valid_after(end)


def end_after(days: int) -> datetime:
    """When a certificate expires that is valid for this many days from now."""
    if not 1 <= days <= 36500:
        raise CertificateError(f"--days {days}: it must be 1 to 36500")
    return datetime.now(UTC) + timedelta(days=days)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if is_reserved(host) or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
        raise CertificateError(
            f"--host '{printable(host)}': it must be a DNS name or an IP address, and none that ends in {RESERVED}"
        )
    return x509.DNSName(host)


def _key_usage(*allowed: str) -> x509.KeyUsage:
    usages = inspect.signature(x509.KeyUsage).parameters
    return x509.KeyUsage(**{usage: usage in allowed for usage in usages})


def _signer(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)
