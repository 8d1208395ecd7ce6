# SPDX-License-Identifier: Apache-2.0
"""A member's certificate and key, and what it checks other members by: files that are checked when loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from pens.errors import CertificateError
from pens.network.certificates.certificate import Identity, check_signed_by, identity_in, parse_certificate, public_key
from pens.network.certificates.key_files import parse_key, read_file, read_key
from pens.network.certificates.revocations import RevocationList


@dataclass(frozen=True, slots=True)
class Credentials:
    """A member's certificate and key, and the authority and revocation list by which it checks other members."""

    identity: Identity
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    authority_pem: bytes
    revoked: RevocationList | None


def load_credentials(folder: Path, revoked: Path | None = None, memory: Path | None = None) -> Credentials:
    """Load and check a member's own files. `revoked`: a revocation list in another place than the folder.

    `memory`: a file that keeps a restarted process from accepting an older list.
    """
    paths = MemberFiles(folder)
    key_pem = read_key(paths.key)
    certificate_pem, authority_pem = read_file(paths.certificate), read_file(paths.authority)
    certificate, authority = (
        parse_certificate(certificate_pem, paths.certificate),
        parse_certificate(authority_pem, paths.authority),
    )
    check_signed_by(authority, certificate, paths.certificate)
    if parse_key(key_pem, paths.key).public_key() != public_key(certificate):
        raise CertificateError(f"{paths.key} is not the key of {paths.certificate}")
    identity = identity_in(certificate)
    if identity.not_after <= datetime.now(UTC):
        raise CertificateError(
            f"{paths.certificate}: the certificate ended at {identity.not_after:%Y-%m-%d}: have a new one issued"
        )
    revocations = RevocationList(revoked or paths.revoked, authority_pem, memory)
    if identity.serial in revocations:
        raise CertificateError(
            f"{paths.certificate}: the certificate of {identity.name} has been revoked: have a new one issued"
        )
    return Credentials(identity, certificate_pem, key_pem, authority_pem, revocations)


@dataclass(frozen=True, slots=True)
class MemberFiles:
    """The paths of a member's own files."""

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
