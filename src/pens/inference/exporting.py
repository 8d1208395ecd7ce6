# SPDX-License-Identifier: Apache-2.0
"""Writes one peer's tested model to a file that other programs read.

A program (TorchScript, ONNX) is written only if it gives the module's own outputs, for another number of samples than
it was made with.
"""

from __future__ import annotations

import io
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from pens.data.samples import Array
from pens.errors import MissingPackage, ModelError, ResultError, suggest
from pens.inference.standardising import name_of

FORMATS = ("state_dict", "torchscript", "onnx")
_SUFFIXES = {"state_dict": (".safetensors", ".pt", ".pth"), "torchscript": (".pt", ".pth", ".ts"), "onnx": (".onnx",)}
_MADE_WITH, _CHECKED_WITH = 2, 3  # samples


def check_target(path: Path, format: str) -> None:
    """Refuse formats, names of files and folders that cannot work, and formats whose packages are missing."""
    if format not in FORMATS:
        raise ResultError(f"format {format!r}{suggest(format, FORMATS)}: choose from {', '.join(FORMATS)}")
    if path.suffix not in _SUFFIXES[format]:
        raise ResultError(f"{path}: a file of the format {format} ends in {' or '.join(_SUFFIXES[format])}")
    if path.is_dir() or not path.parent.is_dir():
        raise ResultError(f"{path}: {'that is a folder' if path.is_dir() else f'there is no folder {path.parent}'}")
    if format == "onnx" and (missing := [name for name in ("onnx", "onnxscript") if not _is_installed(name)]):
        raise MissingPackage(
            f"the format onnx needs {' and '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed: pip install 'pens-fl[onnx]', or take the format torchscript"
        )


def write_state_dict(path: Path, state: Mapping[str, Tensor]) -> None:
    """A model's tensors by name: as safetensors, or as PyTorch saves them, for `torch.load`."""
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
    if path.suffix == ".safetensors":
        _write(path, safetensors.torch.save(tensors))
        return
    buffer = io.BytesIO()
    torch.save(tensors, buffer)
    _write(path, buffer.getvalue())


def write_program(path: Path, module: nn.Module, example: Tensor, format: str) -> None:
    """A module as a program of its own, which takes any number of samples. `example`: at least 3 inputs."""
    made_with, checked_with = example[:_MADE_WITH], example[:_CHECKED_WITH]
    try:
        with _quiet(), torch.no_grad():
            content = (_as_torchscript if format == "torchscript" else _as_onnx)(module, made_with)
            told = (_run_torchscript if format == "torchscript" else _run_onnx)(content, checked_with)
            expected: Array = module(checked_with).numpy()
    except Exception as error:  # whatever a converter makes of a user's network
        words = str(error).strip().partition("\n")[0]
        raise ModelError(
            f"{name_of(module)} cannot be written as {format}: {type(error).__name__}: {words}. The format "
            "state_dict always works"
        ) from error
    if told.shape != expected.shape or not np.allclose(told, expected, rtol=1e-3, atol=1e-4):
        raise ModelError(
            f"{name_of(module)} cannot be written as {format}: the file would give other outputs than the "
            "network, whose computation depends on the inputs or on their number. The format state_dict always works"
        )
    _write(path, content)


def _as_torchscript(module: nn.Module, example: Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.trace(module, (example,), check_trace=False), buffer)  # type: ignore[no-untyped-call]
    return buffer.getvalue()


def _run_torchscript(content: bytes, x: Tensor) -> Array:
    found: Array = torch.jit.load(io.BytesIO(content))(x).numpy()  # type: ignore[no-untyped-call]
    return found


def _as_onnx(module: nn.Module, example: Tensor) -> bytes:
    program = torch.onnx.export(
        module,
        (example,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("sample")},),
        input_names=["x"],
        output_names=["scores"],
        verbose=False,
    )
    assert program is not None
    content: bytes = program.model_proto.SerializeToString()
    return content


def _run_onnx(content: bytes, x: Tensor) -> Array:
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load_model_from_string(content)
    onnx.checker.check_model(model)
    (found,) = ReferenceEvaluator(model).run(None, {"x": x.numpy()})
    return np.asarray(found)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what converters print and warn of: whether the file is right is checked afterwards."""
    logger = logging.getLogger("torch.onnx")
    level, sink = logger.level, io.StringIO()
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(sink), redirect_stderr(sink):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ValueError:  # where a test or a user has put None in its place
        return False


def _write(path: Path, content: bytes) -> None:
    """Write a file beside its place and move it there, so that it is whole or not there."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)
