# SPDX-License-Identifier: Apache-2.0
"""Who is who: a federation's authority, its members' certificates, and the list of those revoked.

    CERTS/                     made by `pens certs init`, kept by whoever runs the federation; never leaves that machine
        authority.pem          the authority's certificate
        authority.key          its key: who has it can admit anybody
        revoked.pem            an X.509 revocation list that the authority signed, for all members
        issued/NAME.SERIAL.pem every certificate there ever was, so that revoking a name revokes all of them
        peers/NAME/            a member's own four files, to be carried to its machine:
            peer.pem, peer.key, authority.pem, revoked.pem

Theory of operation
-------------------
A member's name is the common name of its certificate, and nothing that it says. A server sees its caller's certificate,
and asks `name` and `serial` of it. A caller, though, cannot see the server's certificate: gRPC for Python shows it to
servers only. What a caller can do is to demand, with TLS itself, that the certificate be good for a given DNS name. So
each certificate carries three names that never meet a name server:

    member.pens.internal                    all members: "somebody of this federation"
    NAME.peer.pens.internal                 this name, whichever of its certificates
    NAME.SERIAL.serial.pens.internal        this very certificate

A caller asks the first who it is, gets a name and a serial number that may be a lie, looks the serial number up among
the revoked, and talks only over a connection made for the third. The handshake then fails unless the other side holds
the key of exactly that certificate, when it connects first and each time it has to connect again.

DNS names ignore case, so names of members are lower case. Keys are on the curve P-256, and only those: that keeps TLS
1.2 out (see `native`). Key files have mode 0600 from the moment that they exist.
"""

from __future__ import annotations

import hashlib
import inspect
import ipaddress
import logging
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pens.errors import CertificateError
from pens.protocol.messages import PeerId

AUTHORITY_DAYS = 3650
PEER_DAYS = 365
ANY_MEMBER = "member.pens.internal"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
_CLOCKS_DIFFER = timedelta(minutes=5)  # between members: a new certificate works at once everywhere
_log = logging.getLogger("pens.network")


def check_name(name: str) -> str:
    """`name`, if a member may have it."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise CertificateError(
            f"name {name!r}: a member's name has 1 to 63 lower-case letters, digits, '-', '.' and '_', begins and ends "
            "with a letter or digit, and has no two dots together"
        )
    return name


def peer_id(name: str) -> PeerId:
    """The number that every member knows this name by: 63 bits, the same everywhere, without a directory."""
    return PeerId(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1)


# --- a certificate as the network sees it -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identity:
    """What a member's certificate says. Only certificates that TLS, or `load_credentials`, has checked become one."""

    name: str
    serial: int
    not_after: datetime

    @property
    def dns_name(self) -> str:
        """The DNS name that this very certificate alone is good for."""
        return exact_dns_name(self.name, self.serial)


def exact_dns_name(name: str, serial: int) -> str:
    """The DNS name of one certificate: demanding it of a server demands the key of that certificate."""
    return f"{name}.{serial:x}.serial.pens.internal"


@lru_cache(maxsize=1024)
def identity_of(certificate_pem: bytes) -> Identity:
    """The identity in a certificate whose signature has been checked already."""
    try:
        return _identity(x509.load_pem_x509_certificate(certificate_pem))
    except ValueError as error:
        raise CertificateError(f"not a certificate: {error}") from None


def _identity(certificate: x509.Certificate) -> Identity:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise CertificateError(f"the certificate has {len(names)} common names, not 1")
    name = check_name(str(names[0].value))
    if exact_dns_name(name, certificate.serial_number) not in _dns_names(certificate):
        raise CertificateError(f"the certificate of {name} is not a member's: it was not made by `pens certs issue`")
    return Identity(name, certificate.serial_number, certificate.not_valid_after_utc)


def _dns_names(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)


# --- what a member holds ----------------------------------------------------------------------------------------------


class RevocationList:
    """The serial numbers that are no longer good; follows its file, and believes only what the authority signed.

    A list that is forged, damaged, out of date or older than one that was in use is refused: an error at the start, and
    a line in the log later, when the list in use stays.
    """

    def __init__(self, path: Path, authority_pem: bytes, memory: Path | None = None) -> None:
        """`memory`: a file that keeps the number of the newest list from one life of the process to the next."""
        self.path, self._memory = path, memory
        self._authority = x509.load_pem_x509_certificate(authority_pem)
        self._seen: tuple[int, ...] | None = None
        self._number = self._remembered()
        self._serials: frozenset[int] = frozenset()
        self.ends = datetime.max.replace(tzinfo=UTC)
        """Until when the list in use is good."""
        self._read(self._look())

    def __contains__(self, serial: int) -> bool:
        self._follow()
        return serial in self._serials

    def _look(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError as error:
            raise CertificateError(f"{self.path}: no revocation list: {error.strerror}") from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _follow(self) -> None:
        try:
            seen = self._look()
            if seen != self._seen:
                self._read(seen)
        except CertificateError as error:
            if self._seen != ():
                _log.error("revocation list refused, the one before stays in use: %s", error)
            self._seen = self._look_if_there()

    def _look_if_there(self) -> tuple[int, ...]:
        try:
            return self._look()
        except CertificateError:
            return ()

    def _read(self, seen: tuple[int, ...]) -> None:
        found = read_revocation_list(_read_file(self.path), self._authority, str(self.path))
        if found.number < self._number:
            raise CertificateError(
                f"{self.path}: list {found.number} is older than list {self._number}, which was in use: "
                "get the newest one from the authority"
            )
        is_newer = found.number > self._number
        self._number, self._serials, self._seen, self.ends = found.number, found.serials, seen, found.ends
        if self._memory and is_newer:
            _write(self._memory, b"%d\n" % found.number, 0o600)

    def _remembered(self) -> int:
        if self._memory is None or not self._memory.exists():
            return -1
        words = _read_file(self._memory).strip()
        if not words.isdigit():
            raise CertificateError(f"{self._memory}: not the number of a revocation list: delete it to go on")
        return int(words)


class Revocations(NamedTuple):
    """What a revocation list says."""

    number: int
    serials: frozenset[int]
    ends: datetime


def read_revocation_list(data: bytes, authority: x509.Certificate, place: str) -> Revocations:
    """What a list says, if the authority signed it and it is not out of date."""
    try:
        revoked = x509.load_pem_x509_crl(data)
        genuine = revoked.issuer == authority.subject and revoked.is_signature_valid(_public_key(authority))
        number = revoked.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise CertificateError(f"{place}: not a revocation list: {error}") from None
    if not genuine:
        raise CertificateError(f"{place}: the federation's authority did not sign this revocation list")
    if revoked.next_update_utc is None or revoked.next_update_utc <= datetime.now(UTC):
        raise CertificateError(
            f"{place}: the revocation list ended at {revoked.next_update_utc}: get a new one from the authority"
        )
    return Revocations(number, frozenset(entry.serial_number for entry in revoked), revoked.next_update_utc)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a member shows to others, and what it judges them by."""

    identity: Identity
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    authority_pem: bytes
    revoked: RevocationList | None


def load_credentials(folder: Path, revoked: Path | None = None, memory: Path | None = None) -> Credentials:
    """A member's own files, checked; `revoked`: another place of the revocation list than the folder.

    `memory`: a file that keeps a restart from believing an older list.
    """
    paths = MemberFiles(folder)
    key_pem = _read_key(paths.key)
    certificate_pem, authority_pem = _read_file(paths.certificate), _read_file(paths.authority)
    certificate, authority = (
        _certificate(certificate_pem, paths.certificate),
        _certificate(authority_pem, paths.authority),
    )
    _check_signed_by(authority, certificate, paths.certificate)
    if _load_key(key_pem, paths.key).public_key() != _public_key(certificate):
        raise CertificateError(f"{paths.key} is not the key of {paths.certificate}")
    identity = _identity(certificate)
    if identity.not_after <= datetime.now(UTC):
        raise CertificateError(f"{paths.certificate}: ended at {identity.not_after:%Y-%m-%d}: have a new one issued")
    revocations = RevocationList(revoked or paths.revoked, authority_pem, memory)
    if identity.serial in revocations:
        raise CertificateError(f"{paths.certificate}: the certificate of {identity.name} has been revoked")
    return Credentials(identity, certificate_pem, key_pem, authority_pem, revocations)


@dataclass(frozen=True, slots=True)
class MemberFiles:
    """Where a member's own files are."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "peer.pem"

    @property
    def key(self) -> Path:
        return self.folder / "peer.key"

    @property
    def authority(self) -> Path:
        return self.folder / "authority.pem"

    @property
    def revoked(self) -> Path:
        return self.folder / "revoked.pem"


# --- the authority ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that the authority made."""

    identity: Identity
    revoked: bool


class Authority:
    """A federation's authority: a folder with a key that everybody trusts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._certificate_file = folder / "authority.pem"
        self._key_file = folder / "authority.key"
        self.revoked_file = folder / "revoked.pem"

    def create(self, federation: str = "pens", days: int = AUTHORITY_DAYS, force: bool = False) -> None:
        """Make the authority; `force` replaces one that is there, and every certificate it made becomes worthless."""
        if not force and (self._key_file.exists() or self._certificate_file.exists()):
            raise CertificateError(f"{self.folder} has an authority already: choose another folder, or --force")
        if not 1 <= len(federation) <= 64:
            raise CertificateError(f"federation {federation!r}: give 1 to 64 characters")
        _make_folder(self.folder)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, federation)])
        builder = _builder(subject, subject, key.public_key(), _end(days), x509.random_serial_number())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage("key_cert_sign", "crl_sign"), critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        certificate = builder.add_extension(identifier, critical=False).sign(key, hashes.SHA256())
        _write(self._key_file, _key_pem(key), 0o600)
        _write(self._certificate_file, _pem(certificate), 0o644)
        for old in self._issued_folder.glob("*.pem"):
            old.unlink()
        self._sign_revocations(certificate, key, 0, [])

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = PEER_DAYS, force: bool = False) -> MemberFiles:
        """Make a member's certificate and key; `hosts`: names or addresses that other tools may reach it by."""
        files = MemberFiles(self.folder / "peers" / check_name(name))
        certificate, key = self._load()
        if not force and files.folder.exists():
            raise CertificateError(
                f"{name} has a certificate already in {files.folder}: choose another name, or --force"
            )
        own_key = ec.generate_private_key(ec.SECP256R1())
        own = _member_certificate(
            name, hosts, min(_end(days), certificate.not_valid_after_utc), own_key, certificate, key
        )
        for folder in (self._issued_folder, files.folder.parent, files.folder):
            _make_folder(folder)
        _write(self._issued_folder / f"{name}.{own.serial_number:x}.pem", _pem(own), 0o644)
        _write(files.key, _key_pem(own_key), 0o600)
        _write(files.certificate, _pem(own), 0o644)
        _write(files.authority, _pem(certificate), 0o644)
        _write(files.revoked, _read_file(self.revoked_file), 0o644)
        return files

    def revoke(self, name: str) -> list[Identity]:
        """Revoke all certificates of a name; `issue` with `force` gives it a new one."""
        certificate, key = self._load()
        gone = [entry.identity for entry in self.issued() if entry.identity.name == name]
        if not gone:
            known = ", ".join(sorted({entry.identity.name for entry in self.issued()})) or "none"
            raise CertificateError(f"no certificate was issued to {name!r}; names: {known}")
        number, before, _ = read_revocation_list(_read_file(self.revoked_file), certificate, str(self.revoked_file))
        self._sign_revocations(certificate, key, number + 1, sorted(before | {identity.serial for identity in gone}))
        return gone

    def issued(self) -> list[Issued]:
        """All certificates that the authority made, by name."""
        certificate, _ = self._load()
        _, revoked, _ = read_revocation_list(_read_file(self.revoked_file), certificate, str(self.revoked_file))
        found = [_identity(_certificate(_read_file(path), path)) for path in self._issued_folder.glob("*.pem")]
        found.sort(key=lambda identity: (identity.name, identity.not_after))
        return [Issued(identity, identity.serial in revoked) for identity in found]

    @property
    def federation(self) -> str:
        """The name that the authority was given."""
        return str(self._load()[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    @property
    def not_after(self) -> datetime:
        """When the authority ends, and with it the federation."""
        return self._load()[0].not_valid_after_utc

    @property
    def _issued_folder(self) -> Path:
        return self.folder / "issued"

    def _load(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        if not self._key_file.exists():
            raise CertificateError(f"{self.folder} has no authority: make one with `pens certs init`")
        certificate = _certificate(_read_file(self._certificate_file), self._certificate_file)
        return certificate, _load_key(_read_key(self._key_file), self._key_file)

    def _sign_revocations(
        self, authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, number: int, serials: Sequence[int]
    ) -> None:
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject)
        builder = builder.last_update(now).next_update(authority.not_valid_after_utc)
        builder = builder.add_extension(x509.CRLNumber(number), critical=False)
        builder = builder.add_extension(_signer(authority), critical=False)
        for serial in serials:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        signed = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        for folder in (self.folder, *(self.folder / "peers").glob("*/")):
            _write(folder / "revoked.pem", signed, 0o644)


def _member_certificate(
    name: str,
    hosts: Sequence[str],
    end: datetime,
    own_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> x509.Certificate:
    serial = x509.random_serial_number()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, authority.subject, own_key.public_key(), end, serial)
    names = [ANY_MEMBER, f"{name}.peer.pens.internal", exact_dns_name(name, serial)]
    san = x509.SubjectAlternativeName([*map(x509.DNSName, names), *map(_general_name, hosts or ("localhost",))])
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = builder.add_extension(san, critical=False)
    builder = builder.add_extension(usages, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage("digital_signature"), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(own_key.public_key()), critical=False)
    return builder.add_extension(_signer(authority), critical=False).sign(key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, end: datetime, serial: int
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key).serial_number(serial)
    return builder.not_valid_before(min(datetime.now(UTC), end) - _CLOCKS_DIFFER).not_valid_after(end)


def _end(days: int) -> datetime:
    if not 1 <= days <= 36500:
        raise CertificateError(f"--days {days}: give 1 to 36500")
    return datetime.now(UTC) + timedelta(days=days)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if host.endswith("pens.internal") or not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
        raise CertificateError(f"--host {host!r}: give a DNS name or an IP address")
    return x509.DNSName(host)


def _key_usage(*allowed: str) -> x509.KeyUsage:
    usages = inspect.signature(x509.KeyUsage).parameters
    return x509.KeyUsage(**{usage: usage in allowed for usage in usages})


def _signer(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier.value)


def _check_signed_by(authority: x509.Certificate, certificate: x509.Certificate, path: Path) -> None:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        raise CertificateError(f"{path}: signed by another authority than the one beside it") from None


def _public_key(certificate: x509.Certificate) -> ec.EllipticCurvePublicKey:
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise CertificateError("keys of a federation are on the curve P-256: make them with `pens certs`")
    return key


# --- files ------------------------------------------------------------------------------------------------------------


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(pem: bytes, path: Path) -> x509.Certificate:
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise CertificateError(f"{path}: not a certificate: {error}") from None
    _public_key(certificate)
    return certificate


def _load_key(pem: bytes, path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise CertificateError(f"{path}: not a key: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise CertificateError(f"{path}: not a key on the curve P-256")
    return key


def _read_key(path: Path) -> bytes:
    data = _read_file(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise CertificateError(f"{path}: mode {mode:03o} lets others read the key: chmod 600 {path}")
    return data


def _read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise CertificateError(
            f"{path}: there is no such file. A member needs the four files that `pens certs issue NAME` made for it, "
            "in the folder that `peer.certificates` names; the authority's folder comes from `pens certs init`"
        ) from None
    except OSError as error:
        raise CertificateError(f"{path}: {error.strerror}") from None


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CertificateError(f"{folder}: {error.strerror}") from None


def _write(path: Path, data: bytes, mode: int) -> None:
    """Replace a file at once; until it is complete, and whatever the umask, nobody can read more than `mode` allows."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.unlink(missing_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CertificateError(f"{path}: {error.strerror}") from None
