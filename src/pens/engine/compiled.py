# SPDX-License-Identifier: Apache-2.0
"""Compiles and calls the C kernels of `compiled.c`, which train on a CPU several times faster than PyTorch's layers.

The kernels are compiled when they are first needed, kept in the user's cache, and called through ctypes. They need a C
compiler, but no headers of Python or PyTorch. So compiling takes a second or two, and one compiled library serves all
versions of both. The file's name is a hash of the source and the instruction set, so that a folder shared by different
machines keeps one file for each of them.

A call computes on the calling thread, without Python's lock. `pens.engine.cores` shares the work among several threads.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

import pooch
import torch
from torch import Tensor

from pens.errors import DeviceError

_SOURCE = Path(__file__).with_name("compiled.c")
_INSTRUCTIONS = {
    "AVX512": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
    "AVX2": ("-march=x86-64-v3",),
}
"""Compiler options by the instruction set that PyTorch reports; for others the compiler's own default."""
_FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_SECONDS = 120
_REPAID_BYTES = 1 << 30
"""Activations from which compiling is worth its time: the kernels save about half a second per GB of activations in a
training pass; compiling takes two seconds, once for all later runs."""
_int, _float, _pointer = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


@dataclass(frozen=True)
class Shape:
    """The sizes of one convolution and of the layers that it takes in, in the order in which `compiled.c` reads them.
    `pool` is 1 or 2, `relu` is 0 or 1."""

    batch: int
    channels: int
    height: int
    width: int
    out: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    dilation_h: int
    dilation_w: int
    pool: int
    relu: int
    pooled_h: int
    pooled_w: int

    @property
    def result(self) -> tuple[int, int, int, int]:
        return self.batch, self.pooled_h, self.pooled_w, self.out


class Kernels:
    """The functions of the compiled library. All tensors are float32 on the CPU."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._forward, self._backward, self._adam = loaded.pens_forward, loaded.pens_backward, loaded.pens_adam
        head: list[Any] = [_pointer, _int, _pointer, _pointer, _pointer, _int]
        self._forward.argtypes = [*head, _pointer, _int, _pointer, _pointer]
        self._backward.argtypes = [*head, *[_pointer] * 5]
        self._adam.argtypes = [_int, _int, _pointer, _int, *[_pointer] * 6, *[_float] * 4]
        self._adam.restype = None

    def forward(self, shape: Shape, x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve, and return the result and, for each of its numbers, from which of the pooled positions it came.

        x [peer, batch, channel, height, width] in any strides, w [peer, out, channel, kernel height, kernel width],
        b [peer, out] → [peer, batch, pooled height, pooled width, out] each"""
        y = torch.empty((len(x), *shape.result))
        source = torch.empty(y.shape, dtype=torch.uint8)
        head = _head(shape, x, w)
        _check(self._forward(*head, b.data_ptr(), b.stride(0), y.data_ptr(), source.data_ptr()))
        return y, source

    def backward(
        self, shape: Shape, x: Tensor, w: Tensor, g: Tensor, source: Tensor, with_input: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """The gradients of the input [peer, batch, height, width, channel] (None unless `with_input`), of the kernel
        and of the bias. `source`: what `forward` returned beside the result."""
        dx = torch.empty((len(x), shape.batch, shape.height, shape.width, shape.channels)) if with_input else None
        dw, db = torch.empty(w.shape), torch.empty((len(x), shape.out))
        to = (None if dx is None else dx.data_ptr(), dw.data_ptr(), db.data_ptr())
        _check(self._backward(*_head(shape, x, w), g.data_ptr(), source.data_ptr(), *to))
        return dx, dw, db

    def adam(
        self,
        rows: Tensor,
        gradients: Tensor,
        state: tuple[Tensor, Tensor],
        corrections: tuple[Tensor, Tensor],
        active: Tensor,
        constants: tuple[float, float, float, float],
    ) -> None:
        """Take one step of Adam in place.  rows, gradients, state [peer, parameter]; corrections, active [peer];
        constants: weight decay, β₁, β₂, ε"""
        tensors = (gradients, *state, *corrections, active)
        self._adam(
            *gradients.shape, rows.data_ptr(), rows.stride(0), *(t.data_ptr() for t in tensors), *constants
        )  # fmt: skip


def _head(shape: Shape, x: Tensor, w: Tensor) -> tuple[object, ...]:
    fields = astuple(shape)
    return (
        (_int * len(fields))(*fields), len(x), x.data_ptr(), (_int * 5)(*x.stride()), w.data_ptr(), w.stride(0),
    )  # fmt: skip


def _check(ready: int) -> None:
    if not ready:
        raise MemoryError("out of memory in a compiled convolution: lower batch_size, or memory_mb in section [engine]")


def can_compile(choice: Literal["auto", "always", "never"], work_bytes: float) -> bool:
    """Whether a run computes with the kernels. `work_bytes`: activations that all training passes of the run keep.

    The answer does not depend on what the cache holds, so that a run is the same when it is repeated.
    """
    if choice == "never" or (choice == "auto" and work_bytes < _REPAID_BYTES):
        return False
    try:
        kernels()
    except DeviceError as error:
        if choice == "always":
            raise
        logging.getLogger(__name__).warning("note: %s; going on without them, several times slower", error)
        return False
    return True


@functools.cache
def kernels() -> Kernels:
    """The kernels for this machine, compiled if they are not in the cache. Raises DeviceError where that fails."""
    flags = (*_FLAGS, *_INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), ()))
    machine = repr((flags, platform.system(), platform.machine()))
    name = hashlib.sha256(_SOURCE.read_bytes() + machine.encode()).hexdigest()[:16]
    library = Path(pooch.os_cache("pens")) / "native" / f"{name}.so"
    try:
        if not library.is_file():
            _compile(flags, library)
        return Kernels(library)
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(
            f"the kernels for this CPU cannot be compiled or loaded: {error}; see that {library.parent} can be written "
            "and the compiler runs, or set compile = never"
        ) from error


def _compile(flags: Sequence[str], library: Path) -> None:
    """Compile the kernels into a file. It gets its name when it is complete, so that no process loads half a file."""
    compilers = [path for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (path := shutil.which(name))]
    if not compilers:
        raise DeviceError(
            "there is no C compiler (cc, gcc or clang) to compile the kernels for this CPU: install one (Debian's "
            "package gcc), name one in the variable CC, or set compile = never"
        )
    library.parent.mkdir(parents=True, exist_ok=True)
    compiler = compilers[0]
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        done = subprocess.run(
            [compiler, *flags, str(_SOURCE), "-o", str(made), "-lm"],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode:
            raise DeviceError(
                f"{compiler} cannot compile the kernels for this CPU: {done.stderr.strip()[:300]}: name another "
                "compiler in the variable CC, or set compile = never"
            )
        made.replace(library)
