# SPDX-License-Identifier: Apache-2.0
"""Checking: which records are genuine, within a budget of signatures, and which wait for a certificate.

A record names the certificate by which it is to be checked. If that is not known, the record waits, the certificate is
asked of the member that told the record, and comes in its next message, which it sends at once. What waits is bounded:
the records of one message for each of the last tellers.
"""

from __future__ import annotations

from collections import OrderedDict

from pens.network.members.notary import Notary, Verdict
from pens.network.members.rules import MembershipRules
from pens.network.transport.interface import MemberRecord, Table
from pens.network.transport.limits import RateLimit

_TELLERS = 32  # whose records may wait for certificates


class Checking:
    """Checks records that others tell."""

    def __init__(self, notary: Notary, rules: MembershipRules) -> None:
        self._notary, self._now = notary, 0.0
        self._lacking: OrderedDict[str, dict[int, MemberRecord]] = OrderedDict()  # by teller, then by certificate
        self._signatures = RateLimit(rules.checks_per_s, rules.burst_checks, lambda: self._now)
        self._certificates = RateLimit(rules.certificates_per_s, rules.burst_certificates, lambda: self._now)

    @property
    def num_waiting(self) -> int:
        """Records that wait for certificates."""
        return sum(map(len, self._lacking.values()))

    def check(self, record: MemberRecord, teller: str, now: float) -> Verdict | None:
        """What is known of a record; None if its teller has told too many. Its own one is always checked."""
        self._now = now
        if record.name != teller and not self._signatures.take(teller):
            return None
        return self._notary.check(record)

    def may_want(self, now: float) -> bool:
        """Whether a certificate may be asked for that there is no pressing need of."""
        self._now = now
        return self._certificates.take("")

    def wait_for(self, teller: str, records: list[MemberRecord]) -> None:
        """Let records wait for their certificates, in place of those that waited of the same teller."""
        self._lacking.pop(teller, None)
        if records:
            self._lacking[teller] = {record.serial: record for record in records}
        if len(self._lacking) > _TELLERS:
            self._lacking.popitem(last=False)

    def wanted(self, of: str) -> tuple[int, ...]:
        """Serial numbers of certificates that are asked of a member."""
        return tuple(self._lacking.get(of, ()))

    def learn(self, teller: str, table: Table) -> list[MemberRecord]:
        """Take the certificates that a member brought, as many as were wanted of it; returns the records that waited
        for them."""
        lacking = self._lacking.pop(teller, {})
        learned = [self._notary.learn(certificate) for certificate in table.certificates[: len(lacking)]]
        return [lacking[serial] for serial in learned if serial in lacking]

    def certificates_for(self, table: Table, most: int) -> tuple[bytes, ...]:
        """Certificates that a member wants, as far as they are known."""
        found = [self._notary.certificate(serial) for serial in table.wanted[:most]]
        return tuple(certificate for certificate in found if certificate is not None)
