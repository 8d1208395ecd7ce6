# SPDX-License-Identifier: Apache-2.0
"""A model as bytes, and bytes as a model: safetensors inside, each byte of another peer's checked before it is used.

    payload = length of the header, 8 bytes | header, JSON: {name: dtype, shape, offsets} | the tensors' bytes

Theory of operation. Both sides know the network, so only the numbers in a payload are new. `decode` is told the names,
shapes and dtypes to expect and refuses everything else, in this order, where each step relies on those before it:

    size       at most what the largest form of this model needs; nothing is read before this check
    header     no longer than that of such a model can be, so that JSON of any depth or size is refused or cheap to read
    entries    the expected names, each once, with the expected shape, in a dtype that one of the forms uses
    offsets    each tensor has exactly its bytes, one tensor after the other, to the last byte of the payload
    numbers    finite, before and after int8 is multiplied by its scales

Memory for tensors is allocated only after the first four steps, and no more than the model itself takes. Whatever the
bytes are, the result is a model that passed all checks, or a `PayloadError`. The file format is read here, in some
forty lines, because the library's reader accepts more than a receiver should: metadata, and names and shapes of the
sender's choice. The library writes it.

fp32 tensors are sent in the form that the sender's setting names (`pens.engine.rounding`); int8 ones have their scales
beside them under a name of their own. All other dtypes, for instance whole numbers, are sent as they are. A receiver
accepts any form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import safetensors
import torch
from safetensors.torch import save
from torch import Tensor

from pens.engine.rounding import from_int8, is_rounded, to_int8
from pens.errors import OtherNetwork, PayloadError
from pens.printable import printable
from pens.protocol.messages import NOTE_BYTES, Note
from pens.settings.schema import WireForm

_SCALE = ":scale"
_ENTRY_BYTES = 256  # of JSON for one tensor, beyond its name: dtype, offsets, and a shape of up to some ten axes
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorShape:
    """The shape and dtype that one tensor of a model must have."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


ModelShape = Mapping[str, TensorShape]


def model_shape(tensors: Mapping[str, Tensor]) -> dict[str, TensorShape]:
    """The names, shapes and dtypes that a model of the same network must have."""
    return {name: TensorShape(tuple(t.shape), t.dtype) for name, t in tensors.items()}


def largest_payload(expected: ModelShape) -> int:
    """The bytes of the longest payload that such a model can have in any form."""
    scales = sum(4 * s.shape[0] for s in expected.values() if len(s.shape) > 1)
    return 8 + _largest_header(expected) + sum(s.size_bytes for s in expected.values()) + scales


def _largest_header(expected: ModelShape) -> int:
    entries = [len(json.dumps(name)) + len(_SCALE) + _ENTRY_BYTES for name in expected]
    return 64 + 2 * sum(entries)  # each with a scale


# --- to bytes ---------------------------------------------------------------------------------------------------------


def encode(tensors: Mapping[str, Tensor], form: WireForm) -> bytes:
    """A model as bytes; PayloadError for numbers that every receiver would refuse."""
    contents: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        _check_sendable(name, tensor, tensors)
        contents |= _in_form(name, tensor.detach().cpu(), form)
    try:
        payload: bytes = save(contents)
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise PayloadError(f"the model cannot be sent: {error}") from None
    return payload


def _check_sendable(name: str, tensor: Tensor, tensors: Mapping[str, Tensor]) -> None:
    if tensor.dtype not in _NAMES:
        raise PayloadError(f"tensor {name!r} has dtype {tensor.dtype}, which cannot be sent: use fp32")
    if name + _SCALE in tensors:
        raise PayloadError(f"tensor {name + _SCALE!r} has the name of the scales of tensor {name!r}: rename it")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise PayloadError(
            f"tensor {name!r} holds values that are not finite: training diverged, so the model cannot be sent"
        )


def _in_form(name: str, tensor: Tensor, form: WireForm) -> dict[str, Tensor]:
    """The tensor as it is sent, by name: rounded, or unchanged where the form does not apply or cannot represent it."""
    plain = {name: tensor.clone(memory_format=torch.contiguous_format)}
    if not is_rounded(tensor[None], form):
        return plain
    if form == "fp16":
        half = tensor.half().contiguous()
        return {name: half} if bool(torch.isfinite(half).all()) else plain
    multiples, scales = to_int8(tensor[None])
    if not bool(torch.isfinite(from_int8(multiples, scales)).all()):
        return plain
    return {name: multiples[0].contiguous(), name + _SCALE: scales[0].contiguous()}


# --- from bytes -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StoredTensor:
    """An entry of the header: where a tensor lies in the payload, not checked yet."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def decode(payload: bytes, expected: ModelShape) -> dict[str, Tensor]:
    """The model in a payload, in fp32 where it was rounded; PayloadError if the payload is not such a model."""
    bound = largest_payload(expected)
    if len(payload) > bound:
        raise PayloadError(f"the payload has {len(payload)} bytes, but such a model has at most {bound}")
    header, start = _header(payload, _largest_header(expected))
    entries = {entry.name: entry for entry in _entries(header)}
    scaled = _check_entries(entries, expected)
    _check_places(list(entries.values()), len(payload) - start)
    stored = {name: _tensor(payload, start, entry) for name, entry in entries.items()}
    return {name: _as_expected(name, wanted.dtype, stored, scaled) for name, wanted in expected.items()}


def _header(payload: bytes, bound: int) -> tuple[str, int]:
    """The text of the header, and the byte at which the tensors begin."""
    if len(payload) < 8:
        raise PayloadError(f"the payload has {len(payload)} bytes: it is too short to hold a model")
    length = int.from_bytes(payload[:8], "little")
    if length > bound:
        raise PayloadError(f"the header has {length} bytes, but that of such a model has at most {bound}")
    if 8 + length > len(payload):
        raise PayloadError(f"the header has {length} bytes, but the payload ends after {len(payload)}: it was cut off")
    try:
        return payload[8 : 8 + length].decode(), 8 + length
    except UnicodeDecodeError:
        raise PayloadError(
            "the header is not UTF-8 text: the payload is not a safetensors file, or was damaged on the way"
        ) from None


def _entries(header: str) -> list[_StoredTensor]:
    try:
        parsed = json.loads(header, object_pairs_hook=_no_name_twice, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the header is not the JSON of a safetensors file: {printable(error)}") from None
    if not isinstance(parsed, dict):
        raise PayloadError("the header is not a JSON object: the payload is not a safetensors file")
    return [_entry(name, described) for name, described in parsed.items()]


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("it has the same name twice")
    return members


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _entry(name: str, described: object) -> _StoredTensor:
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise PayloadError(f"the header does not describe tensor '{printable(name)}' by dtype, shape and data_offsets")
    dtype, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(dtype, str) or not _is_sizes(shape) or not _is_sizes(offsets) or len(offsets) != 2:
        raise PayloadError(
            f"the header has dtype, shape or data_offsets of the wrong type for tensor '{printable(name)}'"
        )
    return _StoredTensor(name, dtype, tuple(shape), *offsets)


def _is_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 63 for v in value)


def _check_entries(entries: Mapping[str, _StoredTensor], expected: ModelShape) -> set[str]:
    """Refuse all names, shapes and dtypes but those of this model; return the names of tensors that have scales."""
    scaled = set()
    for name, wanted in expected.items():
        if name not in entries:
            raise OtherNetwork(f"tensor {name!r} is missing: the sender has another network")
        entry = entries[name]
        if entry.shape != wanted.shape:
            raise OtherNetwork(
                f"tensor {name!r} has shape {printable(entry.shape)}, not {wanted.shape}: "
                "the sender has another network"
            )
        if entry.dtype not in _dtypes_of(wanted):
            raise OtherNetwork(
                f"tensor {name!r} has dtype {printable(entry.dtype)}, not {_NAMES.get(wanted.dtype)}: "
                "the sender has another network"
            )
        if entry.dtype == "I8" and wanted.dtype == torch.float32:
            scaled.add(name)
            _check_scale(entries.get(name + _SCALE), name, wanted.shape[0])
    surplus = entries.keys() - expected.keys() - {name + _SCALE for name in scaled}
    if surplus:
        raise OtherNetwork(
            f"tensor '{printable(min(surplus))}' is not part of the model: the sender has another network"
        )
    return scaled


def _dtypes_of(wanted: TensorShape) -> tuple[str | None, ...]:
    """The dtypes in which a tensor may be sent."""
    if wanted.dtype != torch.float32:
        return (_NAMES.get(wanted.dtype),)
    return ("F32", "F16", "I8") if len(wanted.shape) > 1 else ("F32", "F16")


def _check_scale(entry: _StoredTensor | None, name: str, channels: int) -> None:
    if entry is None or entry.dtype != "F32" or entry.shape != (channels,):
        raise PayloadError(f"tensor {name!r} came as int8 without one fp32 scale for each of its {channels} channels")


def _check_places(entries: Sequence[_StoredTensor], num_bytes: int) -> None:
    """Refuse tensors that overlap, leave gaps, or do not end where the payload ends."""
    at = 0
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        size = math.prod(entry.shape) * _DTYPES[entry.dtype].itemsize
        if entry.begin != at or entry.end - entry.begin != size:
            raise PayloadError(
                f"tensor {entry.name!r} lies at bytes {entry.begin} to {entry.end}, not at {at} to {at + size}"
            )
        at = entry.end
    if at != num_bytes:
        raise PayloadError(
            f"the payload has {num_bytes} bytes of tensors, but the header describes {at}: "
            "it was cut off, or is too long"
        )


def _tensor(payload: bytes, start: int, entry: _StoredTensor) -> Tensor:
    """A copy of a tensor whose place was checked; PayloadError if a value in it is not finite."""
    data = np.frombuffer(payload, np.uint8, entry.end - entry.begin, start + entry.begin)
    if entry.dtype == "BOOL" and data.max(initial=0) > 1:
        raise PayloadError(f"tensor {entry.name!r} holds bytes that are neither true nor false")
    tensor = torch.empty(entry.shape, dtype=_DTYPES[entry.dtype])
    if data.size:
        tensor.view(-1).view(torch.uint8).numpy()[:] = data  # which may lie at any address
    _check_finite(entry.name, tensor)
    return tensor


def _check_finite(name: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise PayloadError(f"tensor {name!r} holds values that are not finite: the sender's training diverged")


def _as_expected(name: str, dtype: torch.dtype, stored: Mapping[str, Tensor], scaled: set[str]) -> Tensor:
    if name in scaled:
        tensor = from_int8(stored[name][None], stored[name + _SCALE][None])[0]
        _check_finite(name, tensor)
        return tensor
    return stored[name].to(dtype)  # another one only where fp32 came as fp16


# --- notes ------------------------------------------------------------------------------------------------------------


def encode_note(note: Note) -> bytes:
    """What a peer's method says beside its model, as JSON; empty for nothing."""
    data = b"" if note is None else json.dumps(note, separators=(",", ":"), allow_nan=False).encode()
    if len(data) > NOTE_BYTES:
        raise PayloadError(
            f"the note beside a model has {len(data)} bytes, but at most {NOTE_BYTES} are allowed: "
            "let the behaviour say less"
        )
    return data


def decode_note(data: bytes) -> Note:
    """The note in bytes that another member sent; PayloadError if they are not JSON."""
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"the note beside the model is not JSON: {type(error).__name__}") from error
