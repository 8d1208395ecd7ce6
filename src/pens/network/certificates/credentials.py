# SPDX-License-Identifier: Apache-2.0
"""What a member shows to others, and what it judges them by: its own files, checked when they are loaded."""

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
