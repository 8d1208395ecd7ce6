# SPDX-License-Identifier: Apache-2.0
"""Bytes of other members: what is well-formed comes through unchanged, all else is a WireError, nothing worse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pens.network.transport import wire, wire_pb2
from pens.network.transport.dialling import is_host
from pens.network.transport.interface import Address, MemberRecord, Reception, Table
from pens.network.transport.wire import WireError

WORDS = st.from_regex(r"[a-z0-9]([a-z0-9_-]{0,20}[a-z0-9])?", fullmatch=True)
HOSTS = st.one_of(
    st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,40}[A-Za-z0-9])?", fullmatch=True).filter(is_host),
    st.ip_addresses().map(str),
)
NUMBERS = st.integers(0, 2**64 - 1)
SERIALS = st.integers(0, 2**160 - 1)
RECORDS = st.builds(
    MemberRecord,
    WORDS,
    st.builds(Address, HOSTS, st.integers(1, 65535)),
    NUMBERS,
    NUMBERS,
    st.booleans(),
    st.booleans(),
    SERIALS,
    st.binary(min_size=1, max_size=72),
)
TABLES = st.builds(
    Table,
    st.lists(RECORDS).map(tuple),
    st.lists(SERIALS).map(tuple),
    st.lists(st.binary(max_size=2048), max_size=3).map(tuple),
    st.integers(0, 2**32 - 1),
)


@given(TABLES)
def test_tables_come_through(table: Table) -> None:
    assert wire.decode_table(wire.encode_table(table)) == table


@given(RECORDS, RECORDS)
def test_no_two_records_have_the_same_content_to_sign(one: MemberRecord, other: MemberRecord) -> None:
    alike = replace(one, signature=b"") == replace(other, signature=b"")
    assert (one.content == other.content) == alike


def test_where_a_name_ends_is_signed() -> None:
    one = MemberRecord("ab", Address("c", 1), 1, 1)
    assert one.content != replace(one, name="a", address=Address("bc", 1)).content


def line(signature: bytes) -> wire_pb2.Record:
    return wire_pb2.Record(name="a", host="h", port=1, serial=b"1", signature=signature)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (wire_pb2.Table(records=[line(b"")]), "a record of a without a signature.*same version"),
        (
            wire_pb2.Table(records=[line(bytes(73))]),
            "73 bytes, but at most 72",
        ),
        (wire_pb2.Table(records=[line(b"x")] * 129), "129 records, but at most 128"),
        (wire_pb2.Table(wanted=[b"1"] * 129), "129 wanted certificates, but at most 128"),
        (wire_pb2.Table(certificates=[b"1"] * 129), "129 certificates, but at most 128"),
        (wire_pb2.Table(certificates=[bytes(2049)]), "certificate of 2049 bytes, but at most 2048"),
        (wire_pb2.Table(wanted=[bytes(21)]), "serial number of 21 bytes, but it must have 1 to 20"),
    ],
)
def test_tables_beyond_a_bound(table: wire_pb2.Table, words: str) -> None:
    with pytest.raises(WireError, match=words):
        wire.decode_table(table.SerializeToString())


HEADERS = st.builds(wire.Header, NUMBERS, NUMBERS, st.booleans(), st.binary(max_size=4096))


@given(WORDS, st.integers(0, 2**159), HEADERS, st.sampled_from(Reception))
def test_the_rest_comes_through(name: str, serial: int, header: wire.Header, verdict: Reception) -> None:
    assert wire.decode_claim(wire.encode_claim(name, serial)) == (name, serial)
    assert wire.decode_header(wire.encode_header(header)) == header
    assert wire.decode_receipt(wire.encode_receipt(verdict)) is verdict


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 129, 130, 131, 16382, 16383, 16384, 16385, 16386, 2**21 + 1])
def test_pieces_are_what_protobuf_would_write_and_read(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    message = wire.encode_piece(memoryview(payload)[:size])
    assert wire_pb2.Piece.FromString(message).payload == payload[:size]
    assert wire.decode_piece(message) == payload[:size]


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda tail: b"\x0a" + tail))
@example(b"\x0a\x80\x00")
@example(b"\x0a\x01\x2a\x0a\x01\x2b")
def test_pieces_are_read_as_protobuf_reads_them(data: bytes) -> None:
    try:
        expected = wire_pb2.Piece.FromString(data).payload
    except Exception:
        with pytest.raises(WireError):
            wire.decode_piece(data)
    else:
        assert wire.decode_piece(data) == expected


@given(st.binary(max_size=300))
def test_no_bytes_do_worse_than_a_wire_error(data: bytes) -> None:
    for decode in (
        wire.decode_table,
        wire.decode_claim,
        wire.decode_header,
        wire.decode_piece,
        wire.decode_receipt,
    ):
        try:
            decode(data)
        except WireError:
            continue


@pytest.mark.parametrize(
    ("name", "host", "port"),
    [
        ("a", "unix:/run/x", 1),
        ("a", "", 1),
        ("a", "h", 0),
        ("a", "h", 70_000),
        ("a", "h/x", 1),
        ("a", "fe80::1%eth0", 1),
        ("A", "h", 1),
        ("../a", "h", 1),
        ("", "h", 1),
        ("a", "h" * 300, 1),
        ("a" * 510_000, "h", 1),
        ("\x1b[2J" * 100_000, "h", 1),
        ("a", "\u202e" * 100_000, 1),
        ("a", "2852039166", 1),
    ],
    ids=lambda value: str(value)[:12],
)
def test_lines_that_no_table_may_have(name: str, host: str, port: int) -> None:
    line = wire_pb2.Record(name=name, host=host, port=port, signature=b"x", serial=b"1")
    table = wire_pb2.Table(records=[line])
    with pytest.raises(WireError) as refused:
        wire.decode_table(table.SerializeToString())
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 1000


def test_a_claim_with_a_long_name_is_refused_in_few_words() -> None:
    claim = wire_pb2.Claim(name="\x1b" + "a" * 510_000, serial=b"1").SerializeToString()
    with pytest.raises(WireError, match="510001 characters") as refused:
        wire.decode_claim(claim)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("record", [b"\x0a\x00", b"\x32\x01x", b"\x38\x01", b"\x21" + bytes(8), b"\x2d" + bytes(4)])
def test_records_are_counted_before_they_are_parsed(record: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of two bytes each, and fields of later versions: 250,000 of them would take a gigabyte as objects."""
    if record[0] != 0x0A:
        assert wire.decode_table(record * 512) == Table()
    monkeypatch.setattr(wire, "parse", lambda *_: pytest.fail("was parsed"))
    with pytest.raises(WireError, match="more than the 512 parts"):
        wire.decode_table(record * 513)


@pytest.mark.parametrize("data", [b"\x0a", b"\xff" * 20, b"\x0b\x0c", b"\x0e"])
def test_tables_that_cannot_be_counted(data: bytes) -> None:
    with pytest.raises(WireError):
        wire.decode_table(data)


def test_a_note_that_is_too_long_is_refused() -> None:
    """One byte more than 4096; from a sender that keeps no bound of its own."""
    assert wire.decode_header(wire.encode_header(wire.Header(1, 2, note=bytes(4096)))).note == bytes(4096)
    with pytest.raises(WireError, match="a note of 4097 bytes, but at most 4096 are allowed"):
        wire.decode_header(wire.encode_header(wire.Header(1, 2, note=bytes(4097))))


def test_lists_come_through_and_so_many_that_nobody_has_them_do_not() -> None:
    wanted, lists = {bytes([n]) * 20: 2**63 - n for n in range(4)}, [b"", b"x" * 300_000]
    assert wire.decode_lists(wire.encode_lists(wanted, lists)) == (wanted, lists)
    five = {bytes([n]) * 20: n for n in range(5)}
    for bad, words in (
        (wire.encode_lists(five, []), "0 revocation lists and a wish for 5, but at most 4"),
        (wire.encode_lists({}, [b""] * 5), "5 revocation lists and a wish for 0, but at most 4"),
        (wire.encode_lists({b"x" * 19: 1}, []), "in 19 bytes, not 20"),
        (b"\xff", "not a valid ListTable message"),
    ):
        with pytest.raises(WireError, match=words):
            wire.decode_lists(bad)
