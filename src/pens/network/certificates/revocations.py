# SPDX-License-Identifier: Apache-2.0
"""The list of revoked certificates: read, checked, and followed while the process runs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from pens.errors import CertificateError
from pens.network.certificates.certificate import public_key
from pens.network.certificates.key_files import read_file, write_file

_MOST_DIGITS = 48  # of the number of a list, which has 20 bytes
_log = logging.getLogger("pens.network")


class RevocationList:
    """The serial numbers of revoked certificates; follows its file, and believes only what the authority signed.

    A list that is forged, damaged, out of date or older than one that was in use is refused: with an error at the
    start; later with a line in the log, and the list in use remains in use.
    """

    def __init__(self, path: Path, authority_pem: bytes, memory: Path | None = None) -> None:
        """`memory`: a file that remembers the number of the newest list after the process ends."""
        self.path, self._memory = path, memory
        self._authority = x509.load_pem_x509_certificate(authority_pem)
        self._seen: tuple[int, ...] | None = None
        self._number = self._remembered()
        self._serials: frozenset[int] = frozenset()
        self.ends = datetime.max.replace(tzinfo=UTC)
        """When the list in use expires."""
        self._read(self._look())

    def __contains__(self, serial: int) -> bool:
        self._follow()
        return serial in self._serials

    def _look(self) -> tuple[int, ...]:
        try:
            stat = self.path.stat()
        except OSError as error:
            raise CertificateError(
                f"{self.path}: there is no revocation list: {error.strerror}. Get one from the authority"
            ) from None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def _follow(self) -> None:
        try:
            seen = self._look()
            if seen != self._seen:
                self._read(seen)
        except CertificateError as error:
            if self._seen != ():
                _log.error("revocation list refused, the previous one remains in use: %s", error)
            self._seen = self._look_if_there()

    def _look_if_there(self) -> tuple[int, ...]:
        try:
            return self._look()
        except CertificateError:
            return ()

    def _read(self, seen: tuple[int, ...]) -> None:
        listed = read_revocation_list(read_file(self.path), self._authority, str(self.path))
        if listed.number < self._number:
            raise CertificateError(
                f"{self.path}: list {listed.number} is older than list {self._number}, which was in use: "
                "get the newest one from the authority"
            )
        is_newer = listed.number > self._number
        self._number, self._serials, self._seen, self.ends = listed.number, listed.serials, seen, listed.ends
        if self._memory and is_newer:
            write_file(self._memory, b"%d\n" % listed.number, 0o600)

    def _remembered(self) -> int:
        if self._memory is None or not self._memory.exists():
            return -1
        words = read_file(self._memory).strip()
        if not words.isdigit() or len(words) > _MOST_DIGITS:
            raise CertificateError(f"{self._memory}: not the number of a revocation list: delete the file to go on")
        return int(words)


class Revocations(NamedTuple):
    """The content of a revocation list."""

    number: int
    serials: frozenset[int]
    ends: datetime


def read_revocation_list(data: bytes, authority: x509.Certificate, place: str) -> Revocations:
    """The content of a revocation list, if the authority signed it and it is not out of date."""
    try:
        revoked = x509.load_pem_x509_crl(data)
        genuine = revoked.issuer == authority.subject and revoked.is_signature_valid(public_key(authority))
        number = revoked.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (ValueError, TypeError, x509.ExtensionNotFound) as error:
        raise CertificateError(f"{place}: not a revocation list: {error}") from None
    if not genuine:
        raise CertificateError(
            f"{place}: the federation's authority did not sign this revocation list: get one from the authority"
        )
    if revoked.next_update_utc is None or revoked.next_update_utc <= datetime.now(UTC):
        raise CertificateError(
            f"{place}: the revocation list ended at {revoked.next_update_utc}: get a new one from the authority"
        )
    return Revocations(number, frozenset(entry.serial_number for entry in revoked), revoked.next_update_utc)
