# SPDX-License-Identifier: Apache-2.0
"""What a member shows to others, and what it checks them by: files that are read again while the process runs.

Everything that belongs together is in one `Material`, which is replaced as a whole: a new certificate is never shown
with an old key. Files that do not fit together are refused with a `CertificateError`, and what was in use remains so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from pens.errors import CertificateError
from pens.network.certificates.authorities import Authorities, key_id, title
from pens.network.certificates.certificate import Identity, identity_in, parse_certificate, public_key
from pens.network.certificates.expiry import Term
from pens.network.certificates.key_files import parse_key, read_file, read_key
from pens.network.certificates.revocations import RevocationLists, SignedList, read_lists

FIRST_LIST = timedelta(days=30)
"""An authority without a list has revoked nobody: so long that need not be doubted."""


@dataclass(frozen=True, slots=True)
class Material:
    """A certificate, its key, and the authorities that are trusted, one of which signed it."""

    identity: Identity
    certificate: x509.Certificate
    certificate_pem: bytes
    key_pem: bytes = field(repr=False)
    authorities: Authorities


class Objection(NamedTuple):
    """Why a member's certificate is not accepted."""

    reason: str
    """Few words, for counting."""
    words: str


class Credentials:
    """A member's certificate and key, and the authorities and revocation lists by which it checks other members."""

    def __init__(self, files: MemberFiles, memory: Path | None = None, revoked: Path | None = None) -> None:
        """Read and check the files. `memory`: keeps lists after the process ends; `revoked`: replaces that of `files`.

        The other attributes may be read from any thread; `reload` and what changes lists belong to one.
        """
        self._files, self._revoked = files, revoked or files.revoked
        self.material = read_material(files)
        self.lists = RevocationLists(memory)
        self.list_grace: timedelta | None = None
        """So long after the end of its authority's list a certificate is accepted; None: for ever."""
        self.lists.remember(self.material.authorities)
        self._take_lists(self.material)
        self._check_own(self.material)

    @property
    def identity(self) -> Identity:
        """The member's own name, and the serial number and the end of its certificate."""
        return self.material.identity

    @property
    def certificate_pem(self) -> bytes:
        return self.material.certificate_pem

    @property
    def key_pem(self) -> bytes:
        return self.material.key_pem

    @property
    def authority_pem(self) -> bytes:
        """The certificates of all authorities that are trusted."""
        return self.material.authorities.pem

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files to watch."""
        return (self._files.certificate, self._files.key, self._files.authority, self._revoked)

    # --- other members ------------------------------------------------------------------------------------------------

    def is_revoked(self, serial: int) -> bool:
        """Whether a certificate of this serial number was revoked, whoever issued it."""
        return serial in self.lists

    def trusts(self, certificate: x509.Certificate) -> bool:
        """Whether a certificate is that of a member: signed by an authority, not ended, not revoked."""
        return self.objection(certificate) is None

    def objection(self, certificate: x509.Certificate) -> Objection | None:
        """Why a certificate is not accepted; None if it is. It is checked against the list of its own issuer."""
        try:
            identity = identity_in(certificate)
        except CertificateError as error:
            return Objection("certificate", str(error))
        issuer, name = self.material.authorities.issuer_of(certificate), identity.name
        if issuer is None:
            return Objection("authority", f"no authority that we trust signed the certificate of {name}")
        signed = self.lists.of(key_id(issuer))
        if signed is not None and identity.serial in signed.serials:
            return Objection("revoked", f"the certificate of {name} has been revoked")
        if identity.not_after <= (now := datetime.now(UTC)):
            return Objection("expired", f"the certificate of {name} has ended")
        if self._is_out_of_date(issuer, now):
            ended = f"{self._list_term(issuer).ends:%Y-%m-%d}"
            return Objection(OUT_OF_DATE, f"the revocation list of {title(issuer)} ended on {ended}: get a new one")
        return None

    def all_lists_out_of_date(self) -> bool:
        """Whether no authority has a list that can still be relied on."""
        now = datetime.now(UTC)
        return all(self._is_out_of_date(authority, now) for authority in self.material.authorities.certificates)

    def _is_out_of_date(self, issuer: x509.Certificate, now: datetime) -> bool:
        return self.list_grace is not None and now > self._list_term(issuer).ends + self.list_grace

    # --- what ends when -----------------------------------------------------------------------------------------------

    def terms(self) -> Iterator[Term]:
        """What is in use, and until when: the own certificate, the authorities, and the list of each."""
        material = self.material
        own = material.certificate
        yield Term("certificate", material.identity.name, own.not_valid_before_utc, own.not_valid_after_utc)
        for authority in material.authorities.certificates:
            yield Term("authority", title(authority), authority.not_valid_before_utc, authority.not_valid_after_utc)
            yield self._list_term(authority)

    def _list_term(self, authority: x509.Certificate) -> Term:
        signed, begins = self.lists.of(key_id(authority)), authority.not_valid_before_utc
        term = (signed.begins, signed.ends) if signed else (begins, begins + FIRST_LIST)
        return Term("revocation list", title(authority), *term)

    # --- files that change --------------------------------------------------------------------------------------------

    def reload(self) -> list[str]:
        """Read the files again, and say in words what is new. CertificateError if they do not fit together: then what
        was in use remains in use, except that newer lists are taken."""
        before = self.material
        try:
            material = self._next_material()
            newer = self._take_lists(material)
            self._check_own(material)
        except CertificateError:
            with suppress(CertificateError):
                self._take_lists(before)
            raise
        news = []
        if (material.certificate_pem, material.key_pem) != (before.certificate_pem, before.key_pem):
            news.append(f"certificate {material.identity.serial:x} until {material.identity.not_after:%Y-%m-%d}")
        if material.authorities.ids != before.authorities.ids:
            news.append(f"authorities {', '.join(map(title, material.authorities.certificates))}")
        if news or material.authorities.pem != before.authorities.pem:
            self.material = material
            self.lists.keep_only(material.authorities)
        return news + newer

    def wanted_lists(self) -> dict[bytes, int]:
        """The number from which on a list would be news, for each authority that is trusted."""
        return {authority: self.lists.number(authority) + 1 for authority in self.material.authorities.ids}

    def receive_list(self, der: bytes, place: str) -> SignedList | None:
        """Take a list that another member passed on; None if it is not newer. CertificateError if it is not genuine."""
        return self.lists.receive(der, self.material.authorities, place)

    def _next_material(self) -> Material:
        material, name = read_material(self._files), self.identity.name
        if material.identity.name != name:
            raise CertificateError(
                f"{self._files.certificate}: the certificate of {material.identity.name}, but this member is {name}, "
                "and keeps its name while it runs"
            )
        return material

    def _take_lists(self, material: Material) -> list[str]:
        found = read_lists(read_file(self._revoked), material.authorities, str(self._revoked))
        return [f"revocation list {signed.number}" for signed in self.lists.take(found)]

    def _check_own(self, material: Material) -> None:
        identity, path = material.identity, self._files.certificate
        if identity.not_after <= datetime.now(UTC):
            raise CertificateError(
                f"{path}: the certificate ended at {identity.not_after:%Y-%m-%d}: have a new one issued"
            )
        if self.is_revoked(identity.serial):
            raise CertificateError(
                f"{path}: the certificate of {identity.name} has been revoked: have a new one issued"
            )


OUT_OF_DATE = "list out of date"


def load_credentials(folder: Path, revoked: Path | None = None, memory: Path | None = None) -> Credentials:
    """Load and check a member's own files. `revoked`: a revocation list in another place than the folder.

    `memory`: a file that keeps a restarted process from going back to an older list.
    """
    return Credentials(MemberFiles(folder), memory, revoked)


def read_material(files: MemberFiles) -> Material:
    """The certificate, key and authorities in a member's files, if they belong together."""
    key_pem = read_key(files.key)
    return check_material(read_file(files.certificate), key_pem, read_file(files.authority), files)


def check_material(certificate_pem: bytes, key_pem: bytes, authority_pem: bytes, places: MemberFiles) -> Material:
    """A certificate, key and authorities, if they belong together. `places`: what errors name."""
    certificate = parse_certificate(certificate_pem, places.certificate)
    authorities = Authorities(authority_pem, str(places.authority))
    if authorities.issuer_of(certificate) is None:
        raise CertificateError(
            f"{places.certificate}: signed by another authority than {', '.join(map(title, authorities.certificates))} "
            f"in {places.authority}"
        )
    if parse_key(key_pem, places.key).public_key() != public_key(certificate):
        raise CertificateError(
            f"{places.key} is not the key of {places.certificate}: the two belong together, so put both there, or let "
            "`pens certs install` do it"
        )
    return Material(identity_in(certificate), certificate, certificate_pem, key_pem, authorities)


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

    @property
    def next_key(self) -> Path:
        """The key of a request that has not been answered yet."""
        return self.folder / "next.key"

    def request(self, name: str) -> Path:
        """The request of a member of this name."""
        return self.folder / f"{name}.csr"
