# SPDX-License-Identifier: Apache-2.0
"""A federation whose signatures cost nothing: its members cannot forge them, because they do not look."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pens.network.members.notary import Verdict
from pens.network.transport.interface import MemberRecord

_CERTIFICATE_BYTES = 690
"""About as long as a real one."""


@dataclass
class FakeAuthority:
    """Knows who has which certificate. `trusting`: everyone knows all certificates from the start."""

    trusting: bool = False
    names: dict[int, str] = field(default_factory=dict)
    revoked: set[int] = field(default_factory=set)

    def admit(self, name: str) -> FakeNotary:
        """A member with a new certificate."""
        serial = len(self.names) + 1
        self.names[serial] = name
        return FakeNotary(self, serial)


@dataclass
class FakeNotary:
    """Signs for one member."""

    authority: FakeAuthority
    serial: int
    known: set[int] = field(default_factory=set)
    checks: int = 0

    def __post_init__(self) -> None:
        self.known.add(self.serial)

    def sign(self, record: MemberRecord) -> MemberRecord:
        record = replace(record, serial=self.serial)
        return replace(record, signature=seal(record))

    def check(self, record: MemberRecord) -> Verdict:
        self.checks += 1
        if record.serial not in self.known and not (self.authority.trusting and record.serial in self.authority.names):
            return Verdict.UNKNOWN
        if self.is_withdrawn(record.serial):
            return Verdict.WITHDRAWN
        is_its = self.authority.names[record.serial] == record.name
        return Verdict.GENUINE if is_its and record.signature == seal(record) else Verdict.FORGED

    def learn(self, certificate: bytes) -> int | None:
        serial = int(certificate.rstrip(b"\0") or b"-1")
        if serial not in self.authority.names or serial in self.authority.revoked:
            return None
        self.known.add(serial)
        return serial

    def certificate(self, serial: int) -> bytes | None:
        return b"%d" % serial + bytes(_CERTIFICATE_BYTES) if serial in self.known else None

    def is_withdrawn(self, serial: int) -> bool:
        return serial in self.authority.revoked


def seal(record: MemberRecord) -> bytes:
    """As long as a real signature. Liars of the tests do not call this in another member's name."""
    where = record.address.host, record.address.port
    said = record.incarnation, record.heartbeat, record.left, record.finished
    return hash((record.name, *where, *said, record.serial)).to_bytes(71, signed=True)
