# SPDX-License-Identifier: Apache-2.0
"""Lists of revoked certificates: one of each authority, the newest that this member has seen.

An authority signs its list, so a list may come from anywhere: a file, or any other member. Its number says which of two
is newer; an older one is never taken back, not even after a restart, because the newest ones are kept in the member's
state folder. A list is valid for some weeks. What it revokes stays revoked after that, but somebody may have been
revoked since, so its end is something to be warned of (`expiry`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from pens.errors import CertificateError, PensError
from pens.network.certificates.authorities import Authorities, key_id, title
from pens.network.certificates.certificate import public_key
from pens.network.certificates.key_files import read_file, write_file

LIST_BYTES = 256 << 10
"""The largest list: some five thousand revoked certificates that have not ended yet."""
_LISTS_BYTES = 8 * LIST_BYTES  # in a file
_MAX_NUMBER = 1 << 63
_PEM = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
_MOST_DIGITS = 48  # of the number of a list, which has 20 bytes
_log = logging.getLogger("pens.network")


@dataclass(frozen=True, slots=True)
class SignedList:
    """A revocation list that an authority signed."""

    authority: bytes
    """The number of the authority's key (`key_id`)."""
    number: int
    serials: frozenset[int]
    begins: datetime
    ends: datetime
    der: bytes = field(repr=False)


class RevocationLists:
    """The newest list of each authority."""

    def __init__(self, memory: Path | None = None) -> None:
        """`memory`: a file that keeps the lists after the process ends."""
        self._memory = memory
        self._lists: Mapping[bytes, SignedList] = {}  # replaced as a whole: other threads read it

    def __contains__(self, serial: int) -> bool:
        """Whether any authority has revoked a certificate of this serial number; these are random, so none is twice."""
        return any(serial in signed.serials for signed in self._lists.values())

    def of(self, authority: bytes) -> SignedList | None:
        """The list of an authority."""
        return self._lists.get(authority)

    @property
    def pem(self) -> bytes:
        """All lists, as the content of a file."""
        return _pem_of(self._lists.values())

    def number(self, authority: bytes) -> int:
        """The number of an authority's list; -1 if there is none."""
        signed = self._lists.get(authority)
        return signed.number if signed else -1

    def newer(self, wanted: Mapping[bytes, int]) -> list[bytes]:
        """The lists that a member wants (`Credentials.wanted_lists`), as many as one message may have."""
        newer = [s.der for s in self._lists.values() if s.authority in wanted and s.number >= wanted[s.authority]]
        while newer and sum(map(len, newer)) > LIST_BYTES:
            newer.pop()
        return newer

    def remember(self, authorities: Authorities) -> None:
        """Take the lists that an earlier life kept."""
        if self._memory and self._memory.exists():
            try:
                known = read_lists(read_file(self._memory), authorities, str(self._memory), strangers=True)
            except CertificateError as error:
                raise CertificateError(f"{error}; or delete {self._memory}, to take the list beside the key") from None
            self.take(known)

    def take(self, lists: Iterable[SignedList]) -> list[SignedList]:
        """Take the lists that are newer than those in use, and return them."""
        newer = [signed for signed in lists if signed.number > self.number(signed.authority)]
        if newer:
            ordered = sorted(newer, key=lambda signed: signed.number)
            self._replace({**self._lists, **{signed.authority: signed for signed in ordered}})
        return newer

    def keep_only(self, authorities: Authorities) -> None:
        """Forget the lists of authorities that are trusted no more."""
        kept = {number: signed for number, signed in self._lists.items() if number in authorities.ids}
        if len(kept) < len(self._lists):
            self._replace(kept)

    def receive(self, der: bytes, authorities: Authorities, place: str) -> SignedList | None:
        """Take a list that another member passed on; None if it is not newer. CertificateError if it is not genuine."""
        if len(der) > LIST_BYTES:
            raise CertificateError(f"{place}: a revocation list of {len(der)} bytes, but at most {LIST_BYTES} are read")
        try:
            revoked = x509.load_der_x509_crl(der)
        except ValueError as error:
            raise CertificateError(f"{place}: not a revocation list: {error}") from None
        signer = _signer(revoked, authorities)
        if signer is None:
            raise CertificateError(f"{place}: no authority that we trust signed this revocation list")
        if _number(revoked, place) <= self.number(key_id(signer)):
            return None  # before its serial numbers are read: anybody can send an old list again and again
        signed = _content(revoked, signer, place)
        self.take([signed])
        return signed

    def _replace(self, lists: Mapping[bytes, SignedList]) -> None:
        self._lists = lists
        if self._memory:
            try:
                write_file(self._memory, _pem_of(lists.values()), 0o600)
            except PensError as error:  # whatever kind of error a disk that is full becomes
                _log.error("revocation lists are in use, but cannot be kept: %s", error)


def read_lists(data: bytes, authorities: Authorities, place: str, strangers: bool = False) -> list[SignedList]:
    """The genuine lists in the content of a file. Those of other authorities are left out; there must be one that is
    none of these, unless `strangers`."""
    if len(data) > _LISTS_BYTES:
        raise CertificateError(f"{place}: {len(data)} bytes, but lists of at most {_LISTS_BYTES} are read")
    blocks = _PEM.findall(data)
    if not blocks or data.count(b"-----BEGIN X509 CRL-----") != len(blocks):
        raise CertificateError(
            f"{place}: not a revocation list, or one that is cut off: copy revoked.pem from the authority again"
        )
    found = [_read(_parse(block, place), authorities, place) for block in blocks]
    genuine = [signed for signed in found if signed is not None]
    if not genuine and not strangers:
        names = ", ".join(map(title, authorities.certificates))
        raise CertificateError(
            f"{place}: none of the authorities that are trusted here ({names}) signed this revocation list: get the "
            "newest one from the federation's authority, or from any member"
        )
    return genuine


def pem_of_lists(ders: Iterable[bytes]) -> bytes:
    """Lists as the content of a file."""
    return b"".join(x509.load_der_x509_crl(der).public_bytes(serialization.Encoding.PEM) for der in ders)


def _pem_of(lists: Iterable[SignedList]) -> bytes:
    return pem_of_lists(signed.der for signed in lists)


def _parse(pem: bytes, place: str) -> x509.CertificateRevocationList:
    try:
        return x509.load_pem_x509_crl(pem)
    except ValueError as error:
        raise CertificateError(f"{place}: not a revocation list: {error}") from None


def _read(revoked: x509.CertificateRevocationList, authorities: Authorities, place: str) -> SignedList | None:
    """A list, or None if none of the authorities signed it."""
    signer = _signer(revoked, authorities)
    return _content(revoked, signer, place) if signer else None


def _content(revoked: x509.CertificateRevocationList, signer: x509.Certificate, place: str) -> SignedList:
    if revoked.next_update_utc is None:
        raise CertificateError(f"{place}: a revocation list without an end: sign it with `pens certs refresh`")
    return SignedList(
        key_id(signer),
        _number(revoked, place),
        frozenset(entry.serial_number for entry in revoked),
        revoked.last_update_utc,
        revoked.next_update_utc,
        revoked.public_bytes(serialization.Encoding.DER),
    )


def _number(revoked: x509.CertificateRevocationList, place: str) -> int:
    try:
        number = revoked.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (ValueError, x509.ExtensionNotFound) as error:
        raise CertificateError(f"{place}: a revocation list without a number: {error}") from None
    if not 0 <= number < _MAX_NUMBER:
        raise CertificateError(f"{place}: a revocation list of number {number}, which must be 0 to {_MAX_NUMBER - 1}")
    return number


def _signer(revoked: x509.CertificateRevocationList, authorities: Authorities) -> x509.Certificate | None:
    for authority in authorities.certificates:
        try:
            if revoked.issuer == authority.subject and revoked.is_signature_valid(public_key(authority)):
                return authority
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
    return None
