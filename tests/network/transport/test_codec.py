# SPDX-License-Identifier: Apache-2.0
"""Law 6: decode(encode(x)) = x; no bytes crash the decoder, none make it allocate more than its bound."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from pens.engine.rounding import round_tensors
from pens.errors import PayloadError
from pens.network.transport.codec import (
    TensorShape,
    decode,
    decode_note,
    encode,
    encode_note,
    largest_payload,
    model_shape,
)
from pens.settings.schema import WireForm
from tests.network.models import any_model, paper_model, small_model

FORMS: tuple[WireForm, ...] = get_args(WireForm)
Header = dict[str, Any]


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return list(a) == list(b) and all(a[n].dtype == b[n].dtype and torch.equal(a[n], b[n]) for n in a)


def split(payload: bytes) -> tuple[Header, bytes]:
    length = int.from_bytes(payload[:8], "little")
    return json.loads(payload[8 : 8 + length]), payload[8 + length :]


def joined(header: str | Header, data: bytes) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + data


# --- what is sent arrives ---------------------------------------------------------------------------------------------


@given(any_model())
def test_fp32_arrives_bit_by_bit(model: dict[str, Tensor]) -> None:
    arrived = decode(encode(model, "fp32"), model_shape(model))
    assert list(arrived) == list(model)
    assert all(torch.equal(arrived[n].view(-1).view(torch.int32), model[n].view(-1).view(torch.int32)) for n in model)


@given(any_model(), st.sampled_from(FORMS))
def test_what_arrives_is_what_rounding_says(model: dict[str, Tensor], form: WireForm) -> None:
    arrived = decode(encode(model, form), model_shape(model))
    assert same(arrived, {name: round_tensors(t[None], form)[0] for name, t in model.items()})


@pytest.mark.parametrize("form", FORMS)
def test_other_dtypes_travel_as_they_are(form: WireForm) -> None:
    model = small_model()
    arrived = decode(encode(model, form), model_shape(model))
    for name in ("norm.num_batches_tracked", "mask", "nothing"):
        assert same({name: arrived[name]}, {name: model[name]})


def test_a_row_of_a_stack_is_sent_without_the_rest() -> None:
    row = torch.arange(12.0)
    model = {"a": row[:6].view(2, 3), "b": row[6:].view(3, 2).T}
    assert same(decode(encode(model, "fp32"), model_shape(model)), {n: t.clone() for n, t in model.items()})


def test_the_payload_is_a_safetensors_file() -> None:
    model = paper_model()
    read = safetensors.torch.load(encode(model, "fp32"))
    assert same({name: read[name] for name in model}, model)


def test_the_order_of_tensors_and_their_alignment_do_not_matter() -> None:
    header = {
        "a": {"dtype": "I8", "shape": [1, 3], "data_offsets": [0, 3]},
        "a:scale": {"dtype": "F32", "shape": [1], "data_offsets": [3, 7]},
    }
    payload = joined(header, bytes([1, 2, 255]) + np.float32(0.5).tobytes())
    assert decode(payload, {"a": TensorShape((1, 3))})["a"].tolist() == [[0.5, 1.0, -0.5]]


@pytest.mark.parametrize(("form", "bytes_each"), [("fp32", 4), ("fp16", 2), ("int8", 1)])
def test_a_payload_is_hardly_more_than_the_numbers(form: WireForm, bytes_each: int) -> None:
    model = paper_model()
    numbers = sum(t.numel() for t in model.values())
    payload = encode(model, form)
    assert numbers == 73_418
    assert len(payload) - bytes_each * numbers < 0.01 * 4 * numbers
    assert len(payload) <= largest_payload(model_shape(model))


# --- what is not sent -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_not_finite_is_not_sent(form: WireForm, bad: float) -> None:
    with pytest.raises(PayloadError, match="not finite"):
        encode({"w": torch.tensor([[1.0, bad]])}, form)


def test_names_and_dtypes_that_cannot_be_sent() -> None:
    with pytest.raises(PayloadError, match="rename"):
        encode({"w": torch.ones(2, 2), "w:scale": torch.ones(2)}, "int8")
    with pytest.raises(PayloadError, match="complex64"):
        encode({"w": torch.ones(2, dtype=torch.complex64)}, "fp32")


# --- what is refused --------------------------------------------------------------------------------------------------


def changed(change: Callable[[Header], object], form: WireForm = "fp32") -> bytes:
    header, data = split(encode(small_model(), form))
    change(header)
    return joined(header, data)


def with_numbers(name: str, values: np.typing.NDArray[Any], form: WireForm = "fp32") -> bytes:
    header, data = split(encode(small_model(), form))
    begin, end = header[name]["data_offsets"]
    assert len(values.tobytes()) == end - begin
    return joined(header, data[:begin] + values.tobytes() + data[end:])


def several_changes() -> dict[str, tuple[bytes, str]]:
    """Name → payload and what the refusal says."""
    whole = encode(small_model(), "fp32")
    header, data = split(whole)
    text = json.dumps(header)
    bias = {"dtype": "F32", "shape": [3], "data_offsets": header["conv.bias"]["data_offsets"]}
    halves = np.array([1, np.inf, 1], np.float16)
    return {
        "nothing": (b"", "too short"),
        "only a length": (whole[:8], "cut off"),
        "cut in the header": (whole[:100], "cut off"),
        "cut in the tensors": (whole[:-1], "cut off"),
        "one byte more": (whole + b"\0", "too long"),
        "huge": (whole + bytes(10_000), "at most"),
        "huge header": (b"\xff" * 8 + whole[8:], "at most"),
        "no text": (joined(text, data).replace(b"conv", b"con\xff", 1), "UTF-8"),
        "no JSON": (joined(text[:-1], data), "JSON"),
        "deep JSON": (joined("[" * 1500, data), "JSON"),
        "long number": (joined("9" * 2500, data), "JSON"),
        "NaN in JSON": (joined('{"a": NaN}', data), "not a number"),
        "a list": (joined("[]", data), "JSON object"),
        "a name twice": (joined(text[:-1] + f', "conv.bias": {json.dumps(bias)}}}', data), "twice"),
        "metadata": (changed(lambda h: h.update(__metadata__={"a": "b"})), "does not describe"),
        "missing": (changed(lambda h: h.pop("conv.bias")), "missing"),
        "another name": (changed(lambda h: h.update(x=bias)), "not part of the model"),
        "long name": (changed(lambda h: h.update({"x" * 500: bias})), "not part of the model"),
        "more keys": (changed(lambda h: h["conv.bias"].update(a=1)), "does not describe"),
        "shape": (changed(lambda h: h["conv.bias"].update(shape=[3, 1])), "shape"),
        "negative shape": (changed(lambda h: h["conv.bias"].update(shape=[-3])), "wrong type"),
        "shape of truths": (changed(lambda h: h["conv.bias"].update(shape=[True])), "wrong type"),
        "dtype": (changed(lambda h: h["conv.bias"].update(dtype="I32")), "dtype"),
        "no dtype": (changed(lambda h: h["conv.bias"].update(dtype=["F32"])), "wrong type"),
        "int8 bias": (changed(lambda h: h["conv.bias"].update(dtype="I8")), "dtype"),
        "int8 without scale": (changed(lambda h: h.pop("conv.weight:scale"), "int8"), "scale for each"),
        "fp16 declared as fp32": (changed(lambda h: h["conv.bias"].update(dtype="F32"), "fp16"), "lies at"),
        "fp32 declared as fp16": (changed(lambda h: h["conv.bias"].update(dtype="F16")), "lies at"),
        "overlap": (changed(lambda h: h["conv.bias"].update(data_offsets=[0, 12])), "lies at"),
        "backwards": (changed(lambda h: h["conv.bias"].update(data_offsets=[12, 0])), "lies at"),
        "far away": (changed(lambda h: h["conv.bias"].update(data_offsets=[2**62, 2**62 + 12])), "lies at"),
        "three offsets": (changed(lambda h: h["conv.bias"].update(data_offsets=[0, 1, 2])), "wrong type"),
        "NaN": (with_numbers("conv.bias", np.array([1, np.nan, 1], np.float32)), "not finite"),
        "infinite half": (with_numbers("conv.bias", halves, "fp16"), "not finite"),
        "scale": (with_numbers("conv.weight:scale", np.full(3, 3e38, np.float32), "int8"), "not finite"),
        "neither true nor false": (with_numbers("mask", np.array([0, 2, 1], np.uint8)), "true nor false"),
    }


@pytest.mark.parametrize("what", several_changes())
def test_refused_with_a_reason(what: str) -> None:
    payload, reason = several_changes()[what]
    with pytest.raises(PayloadError, match=reason) as refusal:
        decode(payload, model_shape(small_model()))
    assert len(str(refusal.value)) < 400


@given(st.binary(max_size=2000))
def test_any_bytes_are_refused_or_a_model(payload: bytes) -> None:
    assert_model_or_refusal(payload)


def assert_model_or_refusal(payload: bytes) -> bool:
    """Whether the bytes were a model."""
    expected = model_shape(small_model())
    try:
        model = decode(payload, expected)
    except PayloadError:
        return False
    assert model_shape(model) == expected
    assert all(bool(torch.isfinite(t).all()) for t in model.values())
    return True


# --- a hundred thousand malformed messages ----------------------------------------------------------------------------


class Vandal:
    """Damages payloads in all ways that came to mind. Seeded."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._whole = [encode(small_model(), form) for form in FORMS]
        self._parts = [split(payload) for payload in self._whole]
        self._words: list[object] = [
            0,
            -1,
            2**31,
            2**63,
            10**30,
            1e308,
            None,
            True,
            "",
            "F32",
            "F16",
            "I8",
            "BOOL",
            [],
            [[]],
            {},
        ]

    def message(self) -> bytes:
        ways = (self._flip, self._cut, self._splice, self._lie, self._rename, self._fill, self._nest, self._noise)
        return ways[self._below(len(ways))]()

    def _below(self, bound: int) -> int:
        return int(self._random.integers(bound))

    def _any(self) -> bytearray:
        return bytearray(self._whole[self._below(len(FORMS))])

    def _flip(self) -> bytes:
        payload = self._any()
        for _ in range(1 + self._below(8)):
            payload[self._below(len(payload))] ^= 1 << self._below(8)
        return bytes(payload)

    def _cut(self) -> bytes:
        payload = bytes(self._any())
        begin, end = sorted((self._below(len(payload)), self._below(len(payload))))
        return payload[:end] if self._below(2) else payload[:begin] + payload[end:]

    def _splice(self) -> bytes:
        """The header of one form with another's tensors, or a length of its own choice."""
        header, data = self._parts[self._below(3)][0], self._parts[self._below(3)][1]
        payload = bytearray(joined(header, data))
        if self._below(2):
            payload[: 1 + self._below(8)] = self._random.bytes(1 + self._below(8))
        return bytes(payload)

    def _lie(self) -> bytes:
        """Another value somewhere in the header."""
        header, data = self._parts[self._below(3)]
        lied = json.loads(json.dumps(header))
        name, key = list(lied)[self._below(len(lied))], ("dtype", "shape", "data_offsets")[self._below(3)]
        value, word = lied[name][key], self._words[self._below(len(self._words))]
        if isinstance(value, list) and value and self._below(2):
            value[self._below(len(value))] = word
        else:
            lied[name][key] = word
        return joined(lied, data)

    def _rename(self) -> bytes:
        """A tensor lost, doubled, or under another name."""
        header, data = self._parts[self._below(3)]
        entries = list(header.items())
        name, entry = entries.pop(self._below(len(entries)))
        entries += [[], [(name, entry)] * 2, [(name + "x", entry)], [("\ud800" + name, entry)]][self._below(4)]
        inside = ", ".join(f"{json.dumps(n)}: {json.dumps(e)}" for n, e in entries)
        return joined(f"{{{inside}}}", data)

    def _fill(self) -> bytes:
        """Numbers that are none, or too large."""
        header, data = self._parts[self._below(3)]
        worst = (b"\xff", np.float32(np.inf).tobytes(), np.float16(-np.inf).tobytes(), np.float32(3e38).tobytes())
        word, begin = worst[self._below(4)], self._below(len(data))
        return joined(header, (data[:begin] + word * 8 + data[begin + 8 * len(word) :])[: len(data)])

    def _nest(self) -> bytes:
        opening = ("[", '{"a":', '{"conv.bias":[', "[[],")[self._below(4)]
        return joined(opening * (1 + self._below(900)), bytes(self._below(200)))

    def _noise(self) -> bytes:
        noise = self._random.bytes(self._below(600))
        return noise if self._below(2) else len(noise).to_bytes(8, "little") + noise


def test_a_hundred_thousand_malformed_messages() -> None:
    vandal, survived = Vandal(seed=1), 0
    for _ in range(100_000):
        survived += assert_model_or_refusal(vandal.message())
    assert survived < 20_000  # a flipped bit of a number is another model


@pytest.mark.parametrize("claim", ["length", "shape", "nesting", "payload"])
def test_no_bytes_make_the_decoder_take_much_memory(claim: str) -> None:
    model = paper_model()
    expected, whole = model_shape(model), encode(model, "int8")
    header, data = split(whole)
    name = next(iter(expected))
    payload = {
        "length": (2**62).to_bytes(8, "little") + whole[8:],
        "shape": joined(header | {name: header[name] | {"shape": [2**40]}}, data),
        "nesting": joined("[" * 5_000, data),
        "payload": whole + bytes(10**8),
    }[claim]
    decode(whole, expected)
    tracemalloc.start()
    with pytest.raises(PayloadError):
        decode(payload, expected)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < largest_payload(expected)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_a_note_comes_through(note: object) -> None:
    assert decode_note(encode_note(note)) == note


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reading_of_a_note(data: bytes) -> None:
    with contextlib.suppress(PayloadError):
        decode_note(data)


def test_what_is_no_note_is_refused() -> None:
    assert encode_note(None) == b""
    for wrong in (b"{", b"[" * 4096, b"\xff"):
        with pytest.raises(PayloadError, match="the note beside the model is not JSON"):
            decode_note(wrong)
    assert len(encode_note("x" * 4094)) == 4096
    with pytest.raises(PayloadError, match="has 4097 bytes, but at most 4096"):
        encode_note("x" * 4095)


@pytest.mark.parametrize("form", ["fp32", "fp16", "int8"])
def test_a_tensor_has_the_dtype_that_the_network_has(form: WireForm) -> None:
    """A network's own fp16 tensors stay fp16; only fp32 may come in another form."""
    model = {"half": torch.ones(4, 3, dtype=torch.float16), "full": torch.ones(4, 3)}
    found = decode(encode(model, form), model_shape(model))
    assert {name: tensor.dtype for name, tensor in found.items()} == {"half": torch.float16, "full": torch.float32}


@pytest.mark.parametrize("offsets", [[0, 48], [0, 96]])
def test_the_declared_dtype_must_match_the_bytes(offsets: list[int]) -> None:
    """The bytes of 24 numbers as fp16, declared as fp32."""
    model = {"w": torch.ones(4, 6)}
    payload = encode(model, "fp16")
    start = 8 + int.from_bytes(payload[:8], "little")
    header = json.dumps({"w": {"dtype": "F32", "shape": [4, 6], "data_offsets": offsets}}).encode()
    with pytest.raises(PayloadError):
        decode(len(header).to_bytes(8, "little") + header + payload[start:], model_shape(model))
