# SPDX-License-Identifier: Apache-2.0
"""A model ⇄ the bytes that travel: safetensors inside, every byte of another peer's checked before it is used.

    payload = length of the header, 8 bytes | header, JSON: {name: dtype, shape, offsets} | the tensors' bytes

Theory of operation. Both sides know the model, so nothing in a payload is news but the numbers. `decode` is told the
names, shapes and dtypes to expect and refuses all else, in this order, each step on what the one before has checked:

    size       not above what the largest form of this model needs; nothing is read until then
    header     not longer than such a model's can be, so that JSON of any depth or size is refused or cheap to read
    entries    the expected names, each once, with the expected shape, in a dtype that one of the forms uses
    offsets    each tensor takes exactly its bytes, one after the other, to the last byte of the payload
    numbers    finite, before and after int8 is multiplied out

Only then does memory for tensors exist, as much as the model itself takes: a payload cannot ask for more. Whatever the
bytes are, the result is a model that passed all of this, or a `PayloadError`; there is no third way out. The file
format is read here, in some forty lines, since the library's reader accepts more than a receiver should (metadata,
names and shapes of the sender's choice); its writer writes.

fp32 tensors take the form that the sender chose (`pens.engine.rounding`); int8 ones have their scales beside them under
a name of their own. All other dtypes, whole numbers above all, travel as they are. A receiver takes any form: the
setting is the sender's.
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
    """What one tensor of a model must be."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


ModelShape = Mapping[str, TensorShape]


def model_shape(tensors: Mapping[str, Tensor]) -> dict[str, TensorShape]:
    """What a model must be to be like this one."""
    return {name: TensorShape(tuple(t.shape), t.dtype) for name, t in tensors.items()}


def largest_payload(expected: ModelShape) -> int:
    """No payload of such a model is longer, in any form; in bytes."""
    scales = sum(4 * s.shape[0] for s in expected.values() if len(s.shape) > 1)
    return 8 + _largest_header(expected) + sum(s.size_bytes for s in expected.values()) + scales


def _largest_header(expected: ModelShape) -> int:
    entries = [len(json.dumps(name)) + len(_SCALE) + _ENTRY_BYTES for name in expected]
    return 64 + 2 * sum(entries)  # each with a scale


# --- to bytes ---------------------------------------------------------------------------------------------------------


def encode(tensors: Mapping[str, Tensor], form: WireForm) -> bytes:
    """A model as bytes. Refuses numbers that no receiver would take."""
    contents: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        _check_sendable(name, tensor, tensors)
        contents |= _in_form(name, tensor.detach().cpu(), form)
    try:
        payload: bytes = save(contents)
    except (safetensors.SafetensorError, RuntimeError) as error:
        raise PayloadError(f"this model cannot be sent: {error}") from None
    return payload


def _check_sendable(name: str, tensor: Tensor, tensors: Mapping[str, Tensor]) -> None:
    if tensor.dtype not in _NAMES:
        raise PayloadError(f"tensor {name!r} has dtype {tensor.dtype}, which cannot be sent: use fp32")
    if name + _SCALE in tensors:
        raise PayloadError(f"tensors {name!r} and {name + _SCALE!r}: the second name is taken by scales, rename it")
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        raise PayloadError(f"tensor {name!r} holds values that are not finite: training diverged, nobody would take it")


def _in_form(name: str, tensor: Tensor, form: WireForm) -> dict[str, Tensor]:
    """The tensor as it travels, by name: rounded, or as it is where the form does not touch it or cannot hold it."""
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
class _Entry:
    """Where a tensor lies in a payload, checked against nothing yet."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def decode(payload: bytes, expected: ModelShape) -> dict[str, Tensor]:
    """The model in a payload, in fp32 where it was rounded. PayloadError for anything but such a model."""
    bound = largest_payload(expected)
    if len(payload) > bound:
        raise PayloadError(f"payload of {len(payload)} bytes: this model has at most {bound}")
    header, start = _header(payload, _largest_header(expected))
    entries = {entry.name: entry for entry in _entries(header)}
    scaled = _check_entries(entries, expected)
    _check_places(list(entries.values()), len(payload) - start)
    stored = {name: _tensor(payload, start, entry) for name, entry in entries.items()}
    return {name: _as_expected(name, stored, scaled) for name in expected}


def _header(payload: bytes, bound: int) -> tuple[str, int]:
    """The header's text, and where the tensors begin."""
    if len(payload) < 8:
        raise PayloadError(f"payload of {len(payload)} bytes: too short to hold a model")
    length = int.from_bytes(payload[:8], "little")
    if length > bound:
        raise PayloadError(f"header of {length} bytes: a model of this shape has at most {bound}")
    if 8 + length > len(payload):
        raise PayloadError(f"header of {length} bytes, but the payload ends after {len(payload)}: it was cut off")
    try:
        return payload[8 : 8 + length].decode(), 8 + length
    except UnicodeDecodeError:
        raise PayloadError("header is no UTF-8 text: not a safetensors file, or damaged on the way") from None


def _entries(header: str) -> list[_Entry]:
    try:
        parsed = json.loads(header, object_pairs_hook=_no_name_twice, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"header is not the JSON of a safetensors file: {_short(error)}") from None
    if not isinstance(parsed, dict):
        raise PayloadError("header is not a JSON object: not a safetensors file")
    return [_entry(name, described) for name, described in parsed.items()]


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in it")
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _entry(name: str, described: object) -> _Entry:
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise PayloadError(f"header: {_short(name)!r} is not described by dtype, shape and data_offsets")
    dtype, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(dtype, str) or not _is_sizes(shape) or not _is_sizes(offsets) or len(offsets) != 2:
        raise PayloadError(f"header: dtype, shape or data_offsets of {_short(name)!r} are not of their types")
    return _Entry(name, dtype, tuple(shape), *offsets)


def _is_sizes(value: object) -> bool:
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 1 << 63 for v in value)


def _check_entries(entries: Mapping[str, _Entry], expected: ModelShape) -> set[str]:
    """Refuse any name, shape or dtype but those of this model. Returns the names of tensors that have scales."""
    scaled = set()
    for name, wanted in expected.items():
        if name not in entries:
            raise OtherNetwork(f"tensor {name!r} is missing: the sender has another network")
        entry = entries[name]
        if entry.shape != wanted.shape:
            raise OtherNetwork(f"tensor {name!r} has shape {_short(entry.shape)}, not {wanted.shape}: another network")
        if entry.dtype not in _dtypes_of(wanted):
            raise OtherNetwork(f"tensor {name!r} has dtype {_short(entry.dtype)}, not {_NAMES.get(wanted.dtype)}")
        if entry.dtype == "I8" and wanted.dtype == torch.float32:
            scaled.add(name)
            _check_scale(entries.get(name + _SCALE), name, wanted.shape[0])
    surplus = entries.keys() - expected.keys() - {name + _SCALE for name in scaled}
    if surplus:
        raise OtherNetwork(f"tensor {_short(min(surplus))!r} is not part of the model: the sender has another network")
    return scaled


def _dtypes_of(wanted: TensorShape) -> tuple[str | None, ...]:
    """In which a tensor may travel."""
    if wanted.dtype != torch.float32:
        return (_NAMES.get(wanted.dtype),)
    return ("F32", "F16", "I8") if len(wanted.shape) > 1 else ("F32", "F16")


def _check_scale(entry: _Entry | None, name: str, channels: int) -> None:
    if entry is None or entry.dtype != "F32" or entry.shape != (channels,):
        raise PayloadError(f"tensor {name!r} came as int8 without one fp32 scale for each of its {channels} channels")


def _check_places(entries: Sequence[_Entry], num_bytes: int) -> None:
    """Refuse tensors that overlap, leave gaps, or end elsewhere than the payload does."""
    at = 0
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        size = math.prod(entry.shape) * _DTYPES[entry.dtype].itemsize
        if entry.begin != at or entry.end - entry.begin != size:
            raise PayloadError(
                f"tensor {entry.name!r} lies at bytes {entry.begin} to {entry.end}, not at {at} to {at + size}"
            )
        at = entry.end
    if at != num_bytes:
        raise PayloadError(f"{num_bytes} bytes of tensors, but the header describes {at}: cut off, or too long")


def _tensor(payload: bytes, start: int, entry: _Entry) -> Tensor:
    """A copy of a tensor whose place was checked; refused if a number in it is none."""
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


def _as_expected(name: str, stored: Mapping[str, Tensor], scaled: set[str]) -> Tensor:
    if name in scaled:
        tensor = from_int8(stored[name][None], stored[name + _SCALE][None])[0]
        _check_finite(name, tensor)
        return tensor
    tensor = stored[name]
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def _short(thing: object) -> str:
    """For messages: a sender must not fill a log with a name of its choice."""
    text = str(thing)
    return text if len(text) <= 80 else f"{text[:80]}…"


# --- notes ------------------------------------------------------------------------------------------------------------


def encode_note(note: Note) -> bytes:
    """What a peer says beside its model, as JSON; empty for nothing."""
    data = b"" if note is None else json.dumps(note, separators=(",", ":"), allow_nan=False).encode()
    if len(data) > NOTE_BYTES:
        raise PayloadError(f"a note of {len(data)} bytes: a behaviour may say at most {NOTE_BYTES} beside a model")
    return data


def decode_note(data: bytes) -> Note:
    """What `encode_note` made bytes of; PayloadError if it is no JSON. Whatever it says was said by somebody else."""
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"a note that is no JSON: {type(error).__name__}") from error
