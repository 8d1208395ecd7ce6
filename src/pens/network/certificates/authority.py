# SPDX-License-Identifier: Apache-2.0
"""A federation's authority: it signs the certificates of members, and lists of those that it revoked.

While a new authority takes the place of the old one, the folder has both: members trust both, the new one signs
certificates, and each signs a list of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from pens.errors import CertificateError
from pens.network.certificates.authorities import Authorities, key_id, subject_of
from pens.network.certificates.certificate import (
    Identity,
    certificate_pem_of,
    identity_in,
    parse_certificate,
    public_key,
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
from pens.network.certificates.requests import Request
from pens.network.certificates.revocations import LIST_BYTES, SignedList, pem_of_lists, read_lists

AUTHORITY_DAYS = 3650
PEER_DAYS = 365
LIST_DAYS = 30
_LISTED_AFTER_END = timedelta(days=1)  # clocks may differ


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate that the authority issued."""

    identity: Identity
    revoked: bool
    issuer: bytes | None
    """The number of the key that signed it; None: an authority that has been removed since."""
    key: ec.EllipticCurvePublicKey

    def is_good(self, now: datetime) -> bool:
        """Whether members accept it."""
        return not self.revoked and self.issuer is not None and self.identity.not_after > now

    def is_renewed_by(self, request: Request) -> bool:
        """Whether the holder of this certificate made the request, for its own name."""
        renews = request.renews
        return (
            renews is not None
            and (self.identity.name, self.identity.serial) == (request.name, renews.serial_number)
            and self.key == public_key(renews)
        )


@dataclass(frozen=True, slots=True)
class _Signer:
    """An authority's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def id(self) -> bytes:
        return key_id(self.certificate)


class Authority:
    """A federation's authority: a folder with a key that all members trust."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._certificate_file = folder / "authority.pem"
        self._key_file = folder / "authority.key"
        self.revoked_file = folder / "revoked.pem"

    # --- the authority itself -----------------------------------------------------------------------------------------

    def create(self, federation: str = "pens", days: int = AUTHORITY_DAYS, force: bool = False) -> None:
        """Make the authority. `force` replaces an existing one, whose certificates all become invalid."""
        if not force and (self._key_file.exists() or self._certificate_file.exists()):
            raise CertificateError(f"{self.folder} has an authority already: choose another folder, or --force")
        if not 1 <= len(federation) <= 64:
            raise CertificateError(f"federation {federation!r}: its name must have 1 to 64 characters")
        make_folder(self.folder)
        signer = _new_signer(federation, days)
        write_file(self._key_file, key_pem_of(signer.key), 0o600)
        write_file(self._certificate_file, certificate_pem_of(signer.certificate), 0o644)
        for old in [*self._issued_folder.glob("*.pem"), *self._other_keys.glob("*.key")]:
            old.unlink()
        self._sign_lists([signer], {}, LIST_DAYS)

    def rotate(self, days: int = AUTHORITY_DAYS) -> None:
        """Make a new authority beside the old one: it signs from now on, and members should trust both."""
        signers = self._signers()
        if len(signers) > 1:
            raise CertificateError(
                f"{self.folder} has two authorities already: renew all members' certificates, and remove the old "
                "authority with `pens certs rotate --finish`"
            )
        old, new = signers[0], _new_signer(self.federation, days)
        make_folder(self._other_keys)
        for signer in (old, new):  # whenever this ends, each certificate's key is in one of the files
            write_file(self._other_keys / f"{signer.id.hex()}.key", key_pem_of(signer.key), 0o600)
        self._write_authorities([new, old])
        write_file(self._key_file, key_pem_of(new.key), 0o600)
        (self._other_keys / f"{new.id.hex()}.key").unlink()
        self._sign_lists([new, old], self._revoked(), LIST_DAYS)

    def finish_rotation(self, force: bool = False) -> list[str]:
        """Remove the old authority, and return the names of members whose certificates it alone had signed. If there
        are any, only with `force`."""
        new, *old = self._signers()
        if not old:
            raise CertificateError(f"{self.folder} has one authority: `pens certs rotate` makes a new one beside it")
        now = datetime.now(UTC)
        good = [entry for entry in self.issued() if entry.is_good(now)]
        renewed = {entry.identity.name for entry in good if entry.issuer == new.id}
        left = sorted({entry.identity.name for entry in good} - renewed)
        if left and not force:
            raise CertificateError(
                f"{', '.join(left)}: certificates that the old authority signed, and no newer ones. Renew them first, "
                "or --force, and they are trusted no more"
            )
        self._write_authorities([new])
        self._sign_lists([new], self._revoked(), LIST_DAYS)
        for key in self._other_keys.glob("*.key"):
            key.unlink()
        return left

    # --- certificates -------------------------------------------------------------------------------------------------

    def issue(self, name: str, hosts: Sequence[str] = (), days: int = PEER_DAYS, force: bool = False) -> MemberFiles:
        """Make a member's certificate and key. `hosts`: DNS names or addresses for other tools, which check them."""
        files = MemberFiles(self.folder / "peers" / check_name(name))
        signer = self._signer()
        now = datetime.now(UTC)
        if not force and (files.folder.exists() or any(entry.is_good(now) for entry in self.issued(name))):
            raise CertificateError(f"{name} has a certificate already ({self.folder}): choose another name, or --force")
        own_key = ec.generate_private_key(ec.SECP256R1())
        own = self._certify(signer, name, hosts, days, own_key.public_key())
        for folder in (files.folder.parent, files.folder):
            make_folder(folder)
        write_file(files.key, key_pem_of(own_key), 0o600)
        write_file(files.certificate, own, 0o644)
        write_file(files.authority, read_file(self._certificate_file), 0o644)
        write_file(files.revoked, read_file(self.revoked_file), 0o644)
        return files

    def sign(self, request: Request, hosts: Sequence[str] = (), days: int = PEER_DAYS, force: bool = False) -> bytes:
        """Answer a request: the certificate, the authorities and their lists, as the content of one file.

        `force`: although the member has a certificate of another key, which did not sign the request.
        """
        signer, now, issued = self._signer(), datetime.now(UTC), self.issued()
        force = force or any(entry.is_good(now) and entry.is_renewed_by(request) for entry in issued)
        for entry in issued:
            if entry.key == request.key and entry.revoked:
                raise CertificateError(
                    f"{request.name}: a certificate of this key was revoked: ask for a request with a new key"
                )
            is_other = entry.identity.name == request.name and entry.key != request.key
            if is_other and entry.is_good(now) and not force:
                raise CertificateError(
                    f"{request.name} has a certificate of another key until {entry.identity.not_after:%Y-%m-%d}, and "
                    "that key did not sign the request. If that member asks for a new one all the same, and says that "
                    "this is its key, --force"
                )
        own = self._certify(signer, request.name, hosts, days, request.key)
        return own + read_file(self._certificate_file) + read_file(self.revoked_file)

    def _certify(
        self, signer: _Signer, name: str, hosts: Sequence[str], days: int, key: ec.EllipticCurvePublicKey
    ) -> bytes:
        end = min(end_after(days), signer.certificate.not_valid_after_utc)
        own = member_certificate(name, hosts, end, key, signer.certificate, signer.key)
        make_folder(self._issued_folder)
        pem = certificate_pem_of(own)
        write_file(self._issued_folder / f"{name}.{own.serial_number:x}.pem", pem, 0o644)
        return pem

    def issued(self, name: str | None = None) -> list[Issued]:
        """All certificates that were issued, or those of one name, in the order of names."""
        authorities, revoked = self._authorities(), self._revoked()
        found = []
        for path in self._issued_folder.glob(f"{check_name(name)}.*.pem" if name is not None else "*.pem"):
            certificate = parse_certificate(read_file(path), path)
            issuer, identity = authorities.issuer_of(certificate), identity_in(certificate)
            if name not in (None, identity.name):
                continue
            number = key_id(issuer) if issuer else None
            gone = number is not None and number in revoked and identity.serial in revoked[number].serials
            found.append(Issued(identity, gone, number, public_key(certificate)))
        return sorted(found, key=lambda entry: (entry.identity.name, entry.identity.not_after))

    # --- revocation ---------------------------------------------------------------------------------------------------

    def revoke(self, name: str, days: int = LIST_DAYS) -> list[Identity]:
        """Revoke all certificates of a name; a new one can be issued then."""
        gone = self.issued(name)
        if not gone:
            known = ", ".join(sorted({entry.identity.name for entry in self.issued()})) or "nobody yet"
            raise CertificateError(f"no certificate was issued to {name!r}; certificates were issued to {known}")
        self._sign_lists(self._signers(), self._revoked(), days, gone)
        return [entry.identity for entry in gone]

    def refresh(self, days: int = LIST_DAYS) -> datetime:
        """Sign the lists anew, so that they are valid for so many days, and say when the first of them ends."""
        self._sign_lists(self._signers(), self._revoked(), days)
        return self.lists_end

    @property
    def lists_end(self) -> datetime:
        """When the first of the lists ends."""
        return min(signed.ends for signed in self._revoked().values())

    @property
    def federation(self) -> str:
        """The name of the federation."""
        return subject_of(self._signer().certificate)

    @property
    def not_after(self) -> datetime:
        """When the authority's certificate expires, and with it all others that it signed."""
        return self._signer().certificate.not_valid_after_utc

    @property
    def certificates(self) -> tuple[x509.Certificate, ...]:
        """Those of the authorities that members should trust; the first signs."""
        return self._authorities().certificates

    # --- files --------------------------------------------------------------------------------------------------------

    @property
    def _issued_folder(self) -> Path:
        return self.folder / "issued"

    @property
    def _other_keys(self) -> Path:
        return self.folder / "former"

    def _authorities(self) -> Authorities:
        if not self._key_file.exists():
            raise CertificateError(f"{self.folder} has no authority: make one with `pens certs init`")
        return Authorities(read_file(self._certificate_file), str(self._certificate_file))

    def _signer(self) -> _Signer:
        return self._signers()[0]

    def _signers(self) -> list[_Signer]:
        """The authorities with their keys; the first signs certificates."""
        authorities = self._authorities()
        paths = [self._key_file, *self._other_keys.glob("*.key")]
        keys = [parse_key(read_key(path), path) for path in paths]
        by_number = {x509.SubjectKeyIdentifier.from_public_key(key.public_key()).digest: key for key in keys}
        for certificate in authorities.certificates:
            if key_id(certificate) not in by_number:
                raise CertificateError(
                    f"{self._certificate_file}: the key of {subject_of(certificate)} ({key_id(certificate).hex()}) is "
                    f"neither in {self._key_file} nor in {self._other_keys}: restore the folder from its backup"
                )
        return [_Signer(certificate, by_number[key_id(certificate)]) for certificate in authorities.certificates]

    def _revoked(self) -> Mapping[bytes, SignedList]:
        lists = read_lists(read_file(self.revoked_file), self._authorities(), str(self.revoked_file))
        return {signed.authority: signed for signed in lists}

    def _write_authorities(self, signers: Sequence[_Signer]) -> None:
        pem = b"".join(certificate_pem_of(signer.certificate) for signer in signers)
        for path in self._copies("authority.pem"):
            write_file(path, pem, 0o644)

    def _sign_lists(
        self, signers: Sequence[_Signer], before: Mapping[bytes, SignedList], days: int, gone: Sequence[Issued] = ()
    ) -> None:
        end = end_after(days)
        entries = partial(self._serials, before=before, gone=gone)
        lists = [
            signed_revocations(signer.certificate, signer.key, _number(before.get(signer.id)), entries(signer), end)
            for signer in signers
        ]
        for der in lists:
            if len(der) > LIST_BYTES:
                raise CertificateError(
                    f"the revocation list would have {len(der)} bytes, but members read at most {LIST_BYTES}: rotate "
                    "the authority (`pens certs rotate`), so that a new list begins"
                )
        for path in self._copies("revoked.pem"):
            write_file(path, pem_of_lists(lists), 0o644)

    def _serials(self, signer: _Signer, before: Mapping[bytes, SignedList], gone: Sequence[Issued]) -> list[int]:
        """What the list of an authority names: those revoked before and now, without those that ended since."""
        listed = before[signer.id].serials if signer.id in before else frozenset()
        if not listed and not gone:
            return []
        over = datetime.now(UTC) - _LISTED_AFTER_END
        ended = {entry.identity.serial for entry in self.issued() if entry.identity.not_after < over}
        return sorted((listed | {e.identity.serial for e in gone if e.issuer == signer.id}) - ended)

    def _copies(self, name: str) -> list[Path]:
        """A file of the authority's, and where members' folders have it, too."""
        return [self.folder / name, *(folder / name for folder in (self.folder / "peers").glob("*/"))]


def _new_signer(federation: str, days: int) -> _Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    return _Signer(authority_certificate(federation, end_after(days), key), key)


def _number(before: SignedList | None) -> int:
    """The number of the next list. It grows with time, so that an authority restored from a backup goes on above it."""
    return max(int(time.time()), before.number + 1 if before else 0)
