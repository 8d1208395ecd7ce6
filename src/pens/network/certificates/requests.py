# SPDX-License-Identifier: Apache-2.0
"""Requests for certificates: a member makes its own key, and only the request travels to the authority.

A file with a request contains a certificate signing request (PKCS #10), signed with the new key. A member that has a
certificate adds it, and a signature of the request with its key, so that the authority sees that the same member asks.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pens.errors import CertificateError
from pens.network.certificates.certificate import public_key
from pens.network.certificates.names import check_name

_MOST_BYTES = 64 << 10
_PROOF = (b"-----BEGIN PENS RENEWAL-----", b"-----END PENS RENEWAL-----")


@dataclass(frozen=True, slots=True)
class Request:
    """What a member asks for: a certificate for its name and key. All else in a request is the authority's to say."""

    name: str
    key: ec.EllipticCurvePublicKey
    hosts: tuple[str, ...]
    """Host names that the request asks for; none of them is taken from it."""
    renews: x509.Certificate | None = None
    """A certificate whose key its sender has, too. Whether it is a good one is the authority's to say."""


def make_request(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    renews: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None,
) -> bytes:
    """A request for a certificate, signed with its key, as the content of a file. `renews`: the present one."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, check_name(name))])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM)
    if renews is None:
        return pem
    certificate, present_key = renews
    signature = present_key.sign(_signed_words(request), ec.ECDSA(hashes.SHA256()))
    proof = b"%s\n%s\n%s\n" % (_PROOF[0], b64encode(signature), _PROOF[1])
    return pem + certificate.public_bytes(serialization.Encoding.PEM) + proof


def read_request(data: bytes, place: str) -> Request:
    """The request in the content of a file, checked: whoever made it has the key."""
    if len(data) > _MOST_BYTES:
        raise CertificateError(f"{place}: {len(data)} bytes, but a request has at most {_MOST_BYTES}")
    try:
        request = x509.load_pem_x509_csr(data)
        key, proven = request.public_key(), request.is_signature_valid
        hosts = _hosts(request)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise CertificateError(
            f"{place}: not a request for a certificate: {error}. `pens certs request NAME` makes one"
        ) from None
    if not proven:
        raise CertificateError(
            f"{place}: the request is not signed with its own key, so whoever sent it may not have the key: "
            "ask for a new one"
        )
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError(f"{place}: the key is not on the curve P-256: make it with `pens certs request NAME`")
    names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise CertificateError(f"{place}: the request has {len(names)} common names, not 1")
    return Request(check_name(str(names[0].value)), key, hosts, _renewed(data, request, place))


def _renewed(data: bytes, request: x509.CertificateSigningRequest, place: str) -> x509.Certificate | None:
    """The certificate that is to be renewed, if its key has signed the request."""
    begin, end = (data.find(line) for line in _PROOF)
    if begin < 0:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(data)
        signature = b64decode(data[begin + len(_PROOF[0]) : end])
        public_key(certificate).verify(signature, _signed_words(request), ec.ECDSA(hashes.SHA256()))
    except (ValueError, InvalidSignature):
        raise CertificateError(
            f"{place}: the key of the present certificate did not sign this request: make it again with "
            "`pens certs request NAME`"
        ) from None
    return certificate


def _signed_words(request: x509.CertificateSigningRequest) -> bytes:
    return b"pens: renew by " + request.public_bytes(serialization.Encoding.DER)


def key_words(key: ec.EllipticCurvePublicKey) -> str:
    """A public key in a form that two people can compare: SHA-256 of its DER encoding."""
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    digest = hashes.Hash(hashes.SHA256())
    digest.update(der)
    return digest.finalize().hex(":").upper()


def _hosts(request: x509.CertificateSigningRequest) -> tuple[str, ...]:
    try:
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(str(name.value)[:80] for name in names)
