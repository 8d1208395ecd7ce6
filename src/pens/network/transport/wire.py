# SPDX-License-Identifier: Apache-2.0
"""Messages as bytes and as plain data: what other members send is checked here, before anything else sees it.

`wire_pb2` is generated from wire.proto by `make wire`. Protobuf skips fields that it does not know, so later versions
may add some. Every other deviation from the format raises a `WireError`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError

from pens.errors import CertificateError, TransportError
from pens.network.certificates.authorities import KEY_ID_BYTES, MAX_AUTHORITIES
from pens.network.certificates.names import check_name
from pens.network.transport import wire_pb2
from pens.network.transport.dialling import is_host
from pens.network.transport.interface import Address, MemberRecord, Reception, Table
from pens.network.transport.terms import MOST_PARTS, Part, Terms, plain
from pens.network.transport.versions import Range
from pens.printable import printable
from pens.protocol.messages import NOTE_BYTES

_MAX_SERIAL_BYTES = 20
_MAX_RECORDS = 128  # in a table; and as many certificates, and serial numbers
_MAX_SIGNATURE_BYTES = 72  # two numbers of 33 bytes as DER
_MAX_CERTIFICATE_BYTES = 2048
_MAX_FIELDS = 4 * _MAX_RECORDS
_MAX_TERMS_BYTES = 1 << 18
_DIGEST_BYTES = 32
_FORM = 16  # characters of a form's name
_MAX_FORMS = 16
HEADER = "pens-header-bin"
TICKET = "pens-ticket-bin"
TO = "pens-to"
TICKET_BYTES = 16
_VARINT, _SIZED, _FIXED_BYTES = 0, 2, {1: 8, 5: 4}  # wire types: a number; a size and so many bytes; so many bytes
_PAYLOAD_TAG = bytes([wire_pb2.Piece.PAYLOAD_FIELD_NUMBER << 3 | _SIZED])
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


def encode_table(table: Table) -> bytes:
    """A table as bytes."""
    lines = [
        wire_pb2.Record(
            name=record.name,
            host=record.address.host,
            port=record.address.port,
            incarnation=record.incarnation,
            heartbeat=record.heartbeat,
            left=record.left,
            finished=record.finished,
            signature=record.signature,
            serial=_serial_bytes(record.serial),
        )
        for record in table.records
    ]
    wanted = [_serial_bytes(serial) for serial in table.wanted]
    message = wire_pb2.Table(records=lines, wanted=wanted, certificates=table.certificates, room=table.room)
    return bytes(message.SerializeToString())


def decode_table(data: bytes) -> Table:
    """A table from bytes; its records are well-formed, not necessarily true."""
    _check_num_fields(data)
    table = parse(wire_pb2.Table(), data)
    for what, values in (
        ("records", table.records),
        ("wanted certificates", table.wanted),
        ("certificates", table.certificates),
    ):
        if len(values) > _MAX_RECORDS:
            raise WireError(f"received a table of {len(values)} {what}, but at most {_MAX_RECORDS} are allowed")
    return Table(
        tuple(_record(line) for line in table.records),
        tuple(_serial(serial) for serial in table.wanted),
        tuple(_certificate(certificate) for certificate in table.certificates),
        table.room,
    )


def _check_num_fields(data: bytes) -> None:
    """Refuse a table of too many parts before it is parsed: a record of two bytes takes a hundred as an object."""
    at = fields = 0
    while at < len(data):
        at = _after_field(data, at)
        fields += 1
        if fields > _MAX_FIELDS:
            raise WireError(f"received a table of more than the {_MAX_FIELDS} parts that are allowed")


def _after_field(data: bytes, at: int) -> int:
    """Where the field that begins at `at` ends; fields of later versions are skipped, too."""
    tag, at = _read_varint(data, at)
    if tag & 7 == _VARINT:
        return _read_varint(data, at)[1]
    if tag & 7 == _SIZED:
        size, at = _read_varint(data, at)
        return at + size
    if tag & 7 in _FIXED_BYTES:
        return at + _FIXED_BYTES[tag & 7]
    raise WireError(f"received a table with a field of wire type {tag & 7}, which does not exist")


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number as protobuf writes it, and where the next one begins."""
    number = 0
    for place, byte in enumerate(data[at : at + 10]):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, at + place + 1
    raise WireError("received a message that ends within a number, or has one of more than 64 bits")


def _record(line: wire_pb2.Record) -> MemberRecord:
    name, address = _name(line.name), check_address(Address(line.host, line.port))
    if not line.signature:
        raise WireError(
            f"received a record of {name} without a signature: the member that sent it has a version of pens whose "
            "records are not signed. Install the same version at all members"
        )
    if len(line.signature) > _MAX_SIGNATURE_BYTES:
        raise WireError(
            f"received a signature of {len(line.signature)} bytes, but at most {_MAX_SIGNATURE_BYTES} are allowed"
        )
    numbers = line.incarnation, line.heartbeat
    said = line.left, line.finished
    return MemberRecord(name, address, *numbers, *said, _serial(line.serial), bytes(line.signature))


def _certificate(certificate: bytes) -> bytes:
    if len(certificate) > _MAX_CERTIFICATE_BYTES:
        raise WireError(
            f"received a certificate of {len(certificate)} bytes, but at most {_MAX_CERTIFICATE_BYTES} are allowed"
        )
    return bytes(certificate)


def _serial_bytes(serial: int) -> bytes:
    return serial.to_bytes(_MAX_SERIAL_BYTES)


def _serial(serial: bytes) -> int:
    if not 0 < len(serial) <= _MAX_SERIAL_BYTES:
        raise WireError(f"received a serial number of {len(serial)} bytes, but it must have 1 to {_MAX_SERIAL_BYTES}")
    return int.from_bytes(serial)


def check_address(address: Address) -> Address:
    """Return `address` if something can listen there: a DNS name or an IP address, and a port."""
    if not is_host(address.host):
        raise WireError(f"host '{printable(address.host)}' is neither a DNS name nor an IP address")
    if not 0 < address.port < 1 << 16:
        raise WireError(f"port {address.port} is not between 1 and 65535")
    return address


def _name(name: str) -> str:
    try:
        return check_name(name)
    except CertificateError as error:
        raise WireError(str(error)) from None


def encode_claim(name: str, serial: int) -> bytes:
    """The name and serial number of the certificate that this member holds, as bytes."""
    return bytes(wire_pb2.Claim(name=name, serial=_serial_bytes(serial)).SerializeToString())


def decode_claim(data: bytes) -> tuple[str, int]:
    """A name and a serial number; believe them only after a connection made for that very certificate."""
    claim = parse(wire_pb2.Claim(), data)
    return _name(claim.name), _serial(claim.serial)


def encode_lists(wanted: Mapping[bytes, int], lists: Iterable[bytes]) -> bytes:
    """From which number on this member wants the revocation lists of each authority, and some lists, as bytes."""
    lines = [wire_pb2.WantedList(authority=authority, lowest=lowest) for authority, lowest in wanted.items()]
    return bytes(wire_pb2.ListTable(wanted=lines, lists=lists).SerializeToString())


def decode_lists(data: bytes) -> tuple[dict[bytes, int], list[bytes]]:
    """What a member wants, and lists of which nothing is checked yet but their count."""
    table = parse(wire_pb2.ListTable(), data)
    if max(len(table.wanted), len(table.lists)) > MAX_AUTHORITIES:
        raise WireError(
            f"received {len(table.lists)} revocation lists and a wish for {len(table.wanted)}, "
            f"but at most {MAX_AUTHORITIES} are allowed"
        )
    for line in table.wanted:
        if len(line.authority) != KEY_ID_BYTES:
            raise WireError(f"received the number of an authority in {len(line.authority)} bytes, not {KEY_ID_BYTES}")
    return {bytes(line.authority): line.lowest for line in table.wanted}, [bytes(der) for der in table.lists]


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
