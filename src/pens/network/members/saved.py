# SPDX-License-Identifier: Apache-2.0
"""Records on disk, with the certificates by which they are checked when they are read again.

A file that somebody has changed, or that an older version of pens wrote, brings back no record that is not genuine.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from pens.network.members.notary import Notary, Verdict
from pens.network.transport.interface import Address, MemberRecord


def saved(records: Iterable[MemberRecord], notary: Notary) -> dict[str, Any]:
    """Records and their certificates as plain data."""
    ordered = sorted(records, key=lambda record: record.name)
    found = {notary.certificate(record.serial) for record in ordered}
    certificates = sorted(b64encode(certificate).decode() for certificate in found if certificate)
    return {"records": [_plain(record) for record in ordered], "certificates": certificates}


def restored(state: Mapping[str, Any], notary: Notary) -> list[MemberRecord]:
    """The genuine records of what `saved` made. Older versions saved records without signatures, elsewhere."""
    for certificate in state.get("certificates", ()):
        notary.learn(b64decode(certificate))
    records = [_record(plain) for plain in state.get("records", ())]
    return [record for record in records if notary.check(record) is Verdict.GENUINE]


def _plain(record: MemberRecord) -> list[Any]:
    address, signature = record.address, b64encode(record.signature).decode()
    said = [record.incarnation, record.heartbeat, record.left, record.finished]
    return [record.name, address.host, address.port, *said, f"{record.serial:x}", signature]


def _record(plain: list[Any]) -> MemberRecord:
    name, host, port, incarnation, heartbeat, left, finished, serial, signature = plain
    said = incarnation, heartbeat, left, finished
    return MemberRecord(name, Address(host, port), *said, int(serial, 16), b64decode(signature))
