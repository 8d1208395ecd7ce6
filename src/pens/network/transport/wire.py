# SPDX-License-Identifier: Apache-2.0
"""Messages as bytes and as plain data: what other members send is checked here, before anything else sees it.

`wire_pb2` is generated from wire.proto by `make wire`. Protobuf skips fields that it does not know, so later versions
may add some. Every other deviation from the format raises a `WireError`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError

from pens.errors import CertificateError, TransportError
from pens.network.certificates.names import check_name
from pens.network.transport import wire_pb2
from pens.network.transport.interface import Address, MemberRecord, Reception
from pens.network.transport.terms import MOST_PARTS, Part, Terms, plain
from pens.network.transport.versions import Range
from pens.protocol.messages import NOTE_BYTES

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_MAX_SERIAL_BYTES = 20
_MAX_RECORDS = 2048  # in a table: twice as many as a member keeps
_MAX_TERMS_BYTES = 1 << 18
_DIGEST_BYTES = 32
_FORM = 16  # characters of a form's name
_MAX_FORMS = 16
HEADER = "pens-header-bin"
TICKET = "pens-ticket-bin"
TO = "pens-to"
TICKET_BYTES = 16
_PAYLOAD_TAG = bytes([wire_pb2.Piece.PAYLOAD_FIELD_NUMBER << 3 | 2])  # 2: a size and that many bytes
_VERDICTS = {
    Reception.TAKEN: wire_pb2.Receipt.TAKEN,
    Reception.BUSY: wire_pb2.Receipt.BUSY,
    Reception.REFUSED: wire_pb2.Receipt.REFUSED,
    Reception.OTHER_NETWORK: wire_pb2.Receipt.REFUSED,
}


class WireError(TransportError):
    """Bytes from another member that are not a valid message."""


class _Message(Protocol):
    def ParseFromString(self, data: bytes) -> Any: ...  # noqa: N802


_M = TypeVar("_M", bound=_Message)


def parse(message: _M, data: bytes) -> _M:
    """Fill `message` from bytes, and return it."""
    try:
        message.ParseFromString(data)
    except DecodeError:
        raise WireError(f"received {len(data)} bytes that are not a valid {type(message).__name__} message") from None
    return message


def encode_table(records: Iterable[MemberRecord]) -> bytes:
    """A membership table as bytes."""
    lines = [
        wire_pb2.Record(
            name=record.name,
            host=record.address.host,
            port=record.address.port,
            incarnation=record.incarnation,
            heartbeat=record.heartbeat,
            left=record.left,
            finished=record.finished,
        )
        for record in records
    ]
    return bytes(wire_pb2.Table(records=lines).SerializeToString())


def decode_table(data: bytes) -> tuple[MemberRecord, ...]:
    """A membership table from bytes; its records are well-formed, not necessarily true."""
    lines = parse(wire_pb2.Table(), data).records
    if len(lines) > _MAX_RECORDS:
        raise WireError(f"received a table of {len(lines)} records, but at most {_MAX_RECORDS} are allowed")
    return tuple(_record(line) for line in lines)


def _record(line: wire_pb2.Record) -> MemberRecord:
    address = check_address(Address(line.host, line.port))
    return MemberRecord(_name(line.name), address, line.incarnation, line.heartbeat, line.left, line.finished)


def check_address(address: Address) -> Address:
    """Return `address` if something can listen there: a DNS name or an IP address, and a port."""
    if not _is_host(address.host):
        raise WireError(f"host {address.host[:80]!r} is neither a DNS name nor an IP address")
    if not 0 < address.port < 1 << 16:
        raise WireError(f"port {address.port} is not between 1 and 65535")
    return address


def _is_host(host: str) -> bool:
    if _HOST.fullmatch(host):
        return True
    try:
        return ipaddress.ip_address(host).version == 6 and "%" not in host
    except ValueError:
        return False


def _name(name: str) -> str:
    try:
        return check_name(name)
    except CertificateError as error:
        raise WireError(str(error)) from None


def encode_claim(name: str, serial: int) -> bytes:
    """The name and serial number of the certificate that this member holds, as bytes."""
    return bytes(wire_pb2.Claim(name=name, serial=serial.to_bytes(_MAX_SERIAL_BYTES)).SerializeToString())


def decode_claim(data: bytes) -> tuple[str, int]:
    """A name and a serial number; believe them only after a connection made for that very certificate."""
    claim = parse(wire_pb2.Claim(), data)
    if not 0 < len(claim.serial) <= _MAX_SERIAL_BYTES:
        raise WireError(
            f"received a serial number of {len(claim.serial)} bytes, but it must have 1 to {_MAX_SERIAL_BYTES}"
        )
    return _name(claim.name), int.from_bytes(claim.serial)


def encode_terms(terms: Terms) -> bytes:
    """What a member says of itself, as bytes."""
    message = wire_pb2.Terms(
        oldest=terms.versions.oldest,
        newest=terms.versions.newest,
        parts=[wire_pb2.Part(name=part.name, digest=part.digest, items=part.items) for part in terms.parts],
        sends=terms.sends,
        reads=terms.reads,
        trial=terms.trial,
        relays=terms.relays,
        software=terms.software,
    )
    return bytes(message.SerializeToString())


def decode_terms(data: bytes) -> Terms:
    """What a member says of itself, from bytes; all text in it can be shown."""
    if len(data) > _MAX_TERMS_BYTES:
        raise WireError(f"received terms of {len(data)} bytes, but at most {_MAX_TERMS_BYTES} are allowed")
    told = parse(wire_pb2.Terms(), data)
    if not 0 < told.oldest <= told.newest:
        raise WireError(f"received a range of versions from {told.oldest} to {told.newest}, which is none")
    if len(told.parts) > MOST_PARTS or len(told.reads) > _MAX_FORMS:
        raise WireError(
            f"received terms of {len(told.parts)} parts and {len(told.reads)} forms, but at most {MOST_PARTS} and "
            f"{_MAX_FORMS} are allowed"
        )
    return Terms(
        Range(told.oldest, told.newest),
        tuple(_part(part) for part in told.parts),
        plain(told.sends, _FORM),
        tuple(plain(form, _FORM) for form in told.reads),
        told.trial,
        told.relays,
        plain(told.software, _FORM),
    )


def _part(told: wire_pb2.Part) -> Part:
    if len(told.digest) != _DIGEST_BYTES:
        raise WireError(f"received a digest of {len(told.digest)} bytes, but it must have {_DIGEST_BYTES}")
    return Part.told(told.name, bytes(told.digest), told.items)


@dataclass(frozen=True, slots=True)
class Header:
    """What a sender tells of a model before its bytes."""

    version: int
    size: int
    """Bytes of the payload."""
    answer: bool = False
    note: bytes = b""


def encode_header(header: Header) -> bytes:
    """A header as it stands in a call's metadata."""
    message = wire_pb2.Header(version=header.version, size=header.size, answer=header.answer, note=header.note)
    return bytes(message.SerializeToString())


def decode_header(data: bytes) -> Header:
    """A header from a call's metadata; WireError if it is not one."""
    header = parse(wire_pb2.Header(), data)
    if len(header.note) > NOTE_BYTES:
        raise WireError(f"received a note of {len(header.note)} bytes, but at most {NOTE_BYTES} are allowed")
    return Header(header.version, header.size, header.answer, bytes(header.note))


def encode_piece(payload: memoryview) -> bytes:
    """A part of a model's bytes as a message: what protobuf would write, with one copy instead of three."""
    return b"".join((_PAYLOAD_TAG, _varint(len(payload)), payload))


def decode_piece(data: bytes) -> memoryview:
    """A part of a model's bytes from a message. The usual encoding is read without a copy, all others by protobuf."""
    for size_bytes in range(1, min(6, len(data))):
        before = _PAYLOAD_TAG + _varint(len(data) - 1 - size_bytes)
        if len(before) == 1 + size_bytes and data.startswith(before):
            return memoryview(data)[len(before) :]
    return memoryview(parse(wire_pb2.Piece(), data).payload)


def _varint(number: int) -> bytes:
    """A number as protobuf writes it: seven bits per byte, lowest first, the top bit set in all bytes but the last."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def encode_wanted(ticket: bytes) -> bytes:
    """That somebody wants to talk to a member that cannot be called, as bytes."""
    return bytes(wire_pb2.Wanted(ticket=ticket).SerializeToString())


def decode_wanted(data: bytes) -> bytes:
    """The ticket with which to answer."""
    ticket = bytes(parse(wire_pb2.Wanted(), data).ticket)
    if len(ticket) != TICKET_BYTES:
        raise WireError(f"received a ticket of {len(ticket)} bytes, but it must have {TICKET_BYTES}")
    return ticket


def encode_receipt(verdict: Reception) -> bytes:
    """The answer to a model, as bytes."""
    other_network = verdict is Reception.OTHER_NETWORK
    return bytes(wire_pb2.Receipt(verdict=_VERDICTS[verdict], other_network=other_network).SerializeToString())


def decode_receipt(data: bytes) -> Reception:
    """The answer to a model, from bytes."""
    receipt = parse(wire_pb2.Receipt(), data)
    for verdict, number in _VERDICTS.items():
        if number == receipt.verdict:
            is_other = verdict is Reception.REFUSED and receipt.other_network
            return Reception.OTHER_NETWORK if is_other else verdict
    raise WireError(f"received a receipt with verdict {receipt.verdict}, which does not exist")
