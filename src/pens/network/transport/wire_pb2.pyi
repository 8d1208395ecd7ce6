from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Question(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Claim(_message.Message):
    __slots__ = ("name", "serial")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    serial: bytes
    def __init__(self, name: _Optional[str] = ..., serial: _Optional[bytes] = ...) -> None: ...

class Terms(_message.Message):
    __slots__ = ("oldest", "newest", "parts", "sends", "reads", "trial", "relays", "software")
    OLDEST_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    TRIAL_FIELD_NUMBER: _ClassVar[int]
    RELAYS_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    oldest: int
    newest: int
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    sends: str
    reads: _containers.RepeatedScalarFieldContainer[str]
    trial: bool
    relays: bool
    software: str
    def __init__(self, oldest: _Optional[int] = ..., newest: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., sends: _Optional[str] = ..., reads: _Optional[_Iterable[str]] = ..., trial: _Optional[bool] = ..., relays: _Optional[bool] = ..., software: _Optional[str] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("name", "digest", "items")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    name: str
    digest: bytes
    items: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., digest: _Optional[bytes] = ..., items: _Optional[_Iterable[str]] = ...) -> None: ...

class Wanted(_message.Message):
    __slots__ = ("ticket",)
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ticket: bytes
    def __init__(self, ticket: _Optional[bytes] = ...) -> None: ...

class Record(_message.Message):
    __slots__ = ("name", "host", "port", "incarnation", "heartbeat", "left", "finished", "signature", "serial")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SERIAL_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    port: int
    incarnation: int
    heartbeat: int
    left: bool
    finished: bool
    signature: bytes
    serial: bytes
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., port: _Optional[int] = ..., incarnation: _Optional[int] = ..., heartbeat: _Optional[int] = ..., left: _Optional[bool] = ..., finished: _Optional[bool] = ..., signature: _Optional[bytes] = ..., serial: _Optional[bytes] = ...) -> None: ...

class Table(_message.Message):
    __slots__ = ("records", "wanted", "certificates", "room")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[Record]
    wanted: _containers.RepeatedScalarFieldContainer[bytes]
    certificates: _containers.RepeatedScalarFieldContainer[bytes]
    room: int
    def __init__(self, records: _Optional[_Iterable[_Union[Record, _Mapping]]] = ..., wanted: _Optional[_Iterable[bytes]] = ..., certificates: _Optional[_Iterable[bytes]] = ..., room: _Optional[int] = ...) -> None: ...

class WantedList(_message.Message):
    __slots__ = ("authority", "lowest")
    AUTHORITY_FIELD_NUMBER: _ClassVar[int]
    LOWEST_FIELD_NUMBER: _ClassVar[int]
    authority: bytes
    lowest: int
    def __init__(self, authority: _Optional[bytes] = ..., lowest: _Optional[int] = ...) -> None: ...

class ListTable(_message.Message):
    __slots__ = ("wanted", "lists")
    WANTED_FIELD_NUMBER: _ClassVar[int]
    LISTS_FIELD_NUMBER: _ClassVar[int]
    wanted: _containers.RepeatedCompositeFieldContainer[WantedList]
    lists: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, wanted: _Optional[_Iterable[_Union[WantedList, _Mapping]]] = ..., lists: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("version", "size", "answer", "note")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    version: int
    size: int
    answer: bool
    note: bytes
    def __init__(self, version: _Optional[int] = ..., size: _Optional[int] = ..., answer: _Optional[bool] = ..., note: _Optional[bytes] = ...) -> None: ...

class Piece(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("verdict", "other_network")
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Receipt.Verdict]
        TAKEN: _ClassVar[Receipt.Verdict]
        BUSY: _ClassVar[Receipt.Verdict]
        REFUSED: _ClassVar[Receipt.Verdict]
    UNKNOWN: Receipt.Verdict
    TAKEN: Receipt.Verdict
    BUSY: Receipt.Verdict
    REFUSED: Receipt.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    OTHER_NETWORK_FIELD_NUMBER: _ClassVar[int]
    verdict: Receipt.Verdict
    other_network: bool
    def __init__(self, verdict: _Optional[_Union[Receipt.Verdict, str]] = ..., other_network: _Optional[bool] = ...) -> None: ...
