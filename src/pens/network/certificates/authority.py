# SPDX-License-Identifier: Apache-2.0
"""A federation's authority: it issues and revokes the certificates of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pens.errors import CertificateError
from pens.network.certificates.certificate import (
    Identity,
    certificate_pem_of,
    identity_in,
    parse_certificate,
)
from pens.network.certificates.credentials import MemberFiles
from pens.network.certificates.issuing import (
    authority_certificate,
    end_after,
    member_certificate,
    signed_revocations,
)
from pens.network.certificates.key_files import key_pem_of, make_folder, parse_key, read_file, read_key, write_file
from pens.network.certificates.names import check_name
from pens.network.certificates.revocations import read_revocation_list

AUTHORITY_DAYS = 3650
PEER_DAYS = 365


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that the authority issued."""

    identity: Identity
    revoked: bool


class Authority:
    """A federation's authority: a folder with a key that all members trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._certificate_file = folder / "authority.pem"
        self._key_file = folder / "authority.key"
        self.revoked_file = folder / "revoked.pem"

    def create(self, federation: str = "pens", days: int = AUTHORITY_DAYS, force: bool = False) -> None:
        """Make the authority. `force` replaces an existing one, whose certificates all become invalid."""
        if not force and (self._key_file.exists() or self._certificate_file.exists()):
            raise CertificateError(f"{self.folder} has an authority already: choose another folder, or --force")
        if not 1 <= len(federation) <= 64:
            raise CertificateError(f"federation {federation!r}: its name must have 1 to 64 characters")
        make_folder(self.folder)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = authority_certificate(federation, end_after(days), key)
        write_file(self._key_file, key_pem_of(key), 0o600)
        write_file(self._certificate_file, certificate_pem_of(certificate), 0o644)
        for old in self._issued_folder.glob("*.pem"):
            old.unlink()
        self._sign_revocations(certificate, key, 0, [])

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = PEER_DAYS, force: bool = False) -> MemberFiles:
        """Make a member's certificate and key. `hosts`: DNS names or addresses for other tools, which check them."""
        files = MemberFiles(self.folder / "peers" / check_name(name))
        certificate, key = self._load()
        if not force and files.folder.exists():
            raise CertificateError(
                f"{name} has a certificate already in {files.folder}: choose another name, or --force"
            )
        own_key = ec.generate_private_key(ec.SECP256R1())
        own = member_certificate(
            name, hosts, min(end_after(days), certificate.not_valid_after_utc), own_key, certificate, key
        )
        for folder in (self._issued_folder, files.folder.parent, files.folder):
            make_folder(folder)
        write_file(self._issued_folder / f"{name}.{own.serial_number:x}.pem", certificate_pem_of(own), 0o644)
        write_file(files.key, key_pem_of(own_key), 0o600)
        write_file(files.certificate, certificate_pem_of(own), 0o644)
        write_file(files.authority, certificate_pem_of(certificate), 0o644)
        write_file(files.revoked, read_file(self.revoked_file), 0o644)
        return files

    def revoke(self, name: str) -> list[Identity]:
        """Revoke all certificates of a name; `issue` with `force` then makes a new one."""
        certificate, key = self._load()
        gone = [entry.identity for entry in self.issued() if entry.identity.name == name]
        if not gone:
            known = ", ".join(sorted({entry.identity.name for entry in self.issued()})) or "nobody yet"
            raise CertificateError(f"no certificate was issued to {name!r}; certificates were issued to {known}")
        number, before, _ = read_revocation_list(read_file(self.revoked_file), certificate, str(self.revoked_file))
        self._sign_revocations(certificate, key, number + 1, sorted(before | {identity.serial for identity in gone}))
        return gone

    def issued(self) -> list[Issued]:
        """All certificates that the authority issued, in the order of names."""
        certificate, _ = self._load()
        _, revoked, _ = read_revocation_list(read_file(self.revoked_file), certificate, str(self.revoked_file))
        identities = [
            identity_in(parse_certificate(read_file(path), path)) for path in self._issued_folder.glob("*.pem")
        ]
        identities.sort(key=lambda identity: (identity.name, identity.not_after))
        return [Issued(identity, identity.serial in revoked) for identity in identities]

    @property
    def federation(self) -> str:
        """The name of the federation."""
        return str(self._load()[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    @property
    def not_after(self) -> datetime:
        """When the authority's certificate expires, and with it all others."""
        return self._load()[0].not_valid_after_utc

    @property
    def _issued_folder(self) -> Path:
        return self.folder / "issued"

    def _load(self) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        if not self._key_file.exists():
            raise CertificateError(f"{self.folder} has no authority: make one with `pens certs init`")
        certificate = parse_certificate(read_file(self._certificate_file), self._certificate_file)
        return certificate, parse_key(read_key(self._key_file), self._key_file)

    def _sign_revocations(
        self, authority: x509.Certificate, key: ec.EllipticCurvePrivateKey, number: int, serials: Sequence[int]
    ) -> None:
        signed = signed_revocations(authority, key, number, serials)
        for folder in (self.folder, *(self.folder / "peers").glob("*/")):
            write_file(folder / "revoked.pem", signed, 0o644)
