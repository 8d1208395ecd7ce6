# SPDX-License-Identifier: Apache-2.0
"""Who signs this member's records and checks those of others: a seam, so that a thousand members fit into one test."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from pens.network.transport.interface import MemberRecord


class Verdict(Enum):
    """What is known of a record's signature."""

    GENUINE = "genuine"
    """The member that it is about signed it."""
    FORGED = "forged"
    """That member did not sign it, so whoever told it lied: honest members pass on what they have checked."""
    UNKNOWN = "unknown"
    """The certificate by which to check it is needed first."""
    WITHDRAWN = "withdrawn"
    """The certificate has been revoked, or has ended."""


class Notary(Protocol):
    """Signs this member's records, and checks those of others by their certificates."""

    def sign(self, record: MemberRecord) -> MemberRecord:
        """This member's own record, with its signature."""
        ...

    def check(self, record: MemberRecord) -> Verdict:
        """Whether the member that a record is about signed it."""
        ...

    def learn(self, certificate: bytes) -> int | None:
        """Take a certificate that another member passed on, if it is one of the federation's; returns its serial
        number, or None for one that is not taken."""
        ...

    def certificate(self, serial: int) -> bytes | None:
        """A certificate to pass on; None if it is not known."""
        ...

    def is_withdrawn(self, serial: int) -> bool:
        """Whether a certificate that was taken earlier has been revoked since, or has ended."""
        ...
