# SPDX-License-Identifier: Apache-2.0
"""The C kernels of `compiled.c`: compiled when first asked for, kept in the user's cache, called through ctypes.

They need a C compiler and nothing else: no headers of Python or PyTorch, so that compiling takes a second or two, and
what was compiled serves any version of both. It is kept under a name that holds the source and the instruction set, so
that a folder shared by different machines keeps one file for each.

A call computes on the thread that makes it, without Python's lock: cores share the work above (`pens.engine.cores`).
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
"""By what PyTorch found the processor to have; elsewhere the compiler's own choice."""
_FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")
_SECONDS = 120
_REPAID_BYTES = 1 << 30
"""A training pass saves about half a second per GB of activations; compiling takes two, once for all later runs."""
_int, _float, _pointer = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p


@dataclass(frozen=True)
class Shape:
    """One convolution and what follows it, as `compiled.c` lays it out. `pool` is 1 or 2, `relu` 0 or 1."""

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
    """The compiled kernels. All tensors are float32 on the CPU."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._forward, self._backward, self._adam = loaded.pens_forward, loaded.pens_backward, loaded.pens_adam
        head: list[Any] = [_pointer, _int, _pointer, _pointer, _pointer, _int]
        self._forward.argtypes = [*head, _pointer, _int, _pointer, _pointer]
        self._backward.argtypes = [*head, *[_pointer] * 5]
        self._adam.argtypes = [_int, _int, _pointer, _int, *[_pointer] * 6, *[_float] * 4]
        self._adam.restype = None

    def forward(self, shape: Shape, x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """x [peer, batch, channel, height, width] in any strides, w [peer, out, channel, kernel height, kernel width],
        b [peer, out] → result and where it came from, [peer, batch, pooled height, pooled width, out] each"""
        y = torch.empty((len(x), *shape.result))
        source = torch.empty(y.shape, dtype=torch.uint8)
        head = _head(shape, x, w)
        _check(self._forward(*head, b.data_ptr(), b.stride(0), y.data_ptr(), source.data_ptr()))
        return y, source

    def backward(
        self, shape: Shape, x: Tensor, w: Tensor, g: Tensor, source: Tensor, with_input: bool
    ) -> tuple[Tensor | None, Tensor, Tensor]:
        """Gradients of the input [peer, batch, height, width, channel] (if asked for), the kernel and the bias."""
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
        """One step in place.  rows, gradients, state [peer, parameter]; corrections, active [peer];
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
        raise MemoryError("out of memory in a convolution: lower batch_size")


def can_compile(choice: Literal["auto", "always", "never"], work_bytes: float) -> bool:
    """Whether a run computes with the kernels. `work_bytes`: activations that all its training passes keep.

    The answer depends on the run alone, not on what the cache holds, so that a run is the same when repeated.
    """
    if choice == "never" or (choice == "auto" and work_bytes < _REPAID_BYTES):
        return False
    try:
        kernels()
    except DeviceError as error:
        if choice == "always":
            raise
        logging.getLogger(__name__).warning("note: %s; going on without, several times slower", error)
        return False
    return True


@functools.cache
def kernels() -> Kernels:
    """The kernels for this machine, compiled if they are not in the cache. Refuses with a DeviceError."""
    flags = (*_FLAGS, *_INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), ()))
    machine = repr((flags, platform.system(), platform.machine()))
    name = hashlib.sha256(_SOURCE.read_bytes() + machine.encode()).hexdigest()[:16]
    library = Path(pooch.os_cache("pens")) / "native" / f"{name}.so"
    try:
        if not library.is_file():
            _compile(flags, library)
        return Kernels(library)
    except (OSError, subprocess.SubprocessError) as error:
        raise DeviceError(f"the kernels for this CPU cannot be compiled or loaded: {error}") from error


def _compile(flags: Sequence[str], library: Path) -> None:
    """Written under another name first, so that no process ever loads half a file."""
    found = [path for name in (os.environ.get("CC"), "cc", "gcc", "clang") if name and (path := shutil.which(name))]
    if not found:
        raise DeviceError("there is no C compiler (cc, gcc, clang) to compile the kernels for this CPU")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / library.name
        done = subprocess.run(
            [found[0], *flags, str(_SOURCE), "-o", str(made), "-lm"], capture_output=True, text=True, timeout=_SECONDS
        )
        if done.returncode:
            raise DeviceError(f"{found[0]} cannot compile the kernels for this CPU: {done.stderr.strip()[:300]}")
        made.replace(library)
