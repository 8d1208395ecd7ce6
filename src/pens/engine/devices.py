# SPDX-License-Identifier: Apache-2.0
"""Chooses the device that computes, and tells what it can do and how much memory a chunk may take."""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pens.engine.lowering import Level
from pens.errors import DeviceError

try:
    import resource
except ImportError:  # not a Unix
    resource = None  # type: ignore[assignment]

DOTS = {"fp32": "tf32x3", "tf32": "tf32", "bf16": "bf16"}
"""For each value of the setting `precision`, Triton's name for the precision of a fused kernel's products. fp32 is
computed as three products of the numbers' leading and trailing halves on tensor cores: as exact as fp32 up to the last
bit or two, and compiled in a tenth of the time."""
_CPU_CHUNK_MB = 512
_CUDA_SHARE = 0.4
_KEPT_SHARE = 0.25


def resolve_device(name: str) -> torch.device:
    """The device that a user named: `auto` (a GPU if there is one), `cpu`, `cuda` or `cuda:1`."""
    name = str(name)
    if name == "auto":
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", name):
        raise DeviceError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N")
    device = torch.device(name)
    if device.type == "cuda":
        device = torch.device("cuda", device.index or 0)
        count = torch.cuda.device_count()
        if count == 0:
            raise DeviceError(
                f"device {name}: PyTorch sees no GPU on this machine: use --device cpu or auto, or look at what "
                "nvidia-smi says"
            )
        if device.index >= count:
            raise DeviceError(
                f"device {name}: this machine has {count} GPU{'s' if count > 1 else ''}, numbered from 0: use at most "
                f"cuda:{count - 1}"
            )
    return device


def has_kernels(device: torch.device) -> bool:
    """Whether the device runs kernels written in Triton, which comes with PyTorch's CUDA builds."""
    return device.type == "cuda" and importlib.util.find_spec("triton") is not None


def lowering_levels(device: torch.device, compiled: bool) -> tuple[Level, ...]:
    """The levels of lowering to try on a device, the fastest first. `compiled`: whether a CPU's kernels may be used."""
    if has_kernels(device):
        return ("fused", "sliced", "plain")
    return ("compiled", "sliced", "plain") if compiled else ("sliced", "plain")


def prepare_device(device: torch.device, precision: str) -> None:
    """Make a GPU the current one, and let its products and convolutions use TF32 unless full fp32 was asked for.

    Both settings apply to the whole process.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)
        _let_round(precision != "fp32", precision != "fp32")


@contextmanager
def exact_products() -> Iterator[None]:
    """Within this context a GPU multiplies in fp32, so that a trial sees no rounding of TF32. Libraries choose their
    algorithms by the size of a batch, and TF32 rounds otherwise with each. Without a GPU nothing is set."""
    if not torch.cuda.is_available():
        yield
        return
    before = rounding_allowed()
    _let_round(False, False)
    try:
        yield
    finally:
        _let_round(*before)


def rounding_allowed() -> tuple[bool, bool]:
    """Whether a GPU's matrix products, and its convolutions, may use TF32."""
    product, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if hasattr(cudnn, "conv"):  # since PyTorch 2.9, which may refuse to read the older settings
        return product.fp32_precision == "tf32", cudnn.conv.fp32_precision == "tf32"
    return bool(product.allow_tf32), bool(cudnn.allow_tf32)


def _let_round(products: bool, convolutions: bool) -> None:
    """Set both. The older settings keep the newer ones in step with them, and not the other way round."""
    with warnings.catch_warnings():  # PyTorch 2.9 and 2.10 warn of the older ones
        warnings.filterwarnings("ignore", "Please use the new API settings")
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = products, convolutions


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def memory_bytes(device: torch.device, megabytes: int) -> int:
    """Bytes that the activations of one chunk may take: `megabytes` where they are set, else what suits the device.

    On a CPU the default is enough for some sixty of the paper's networks at once; more memory brings no more speed.
    """
    if megabytes:
        return megabytes << 20
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _CUDA_SHARE)
    return _CPU_CHUNK_MB << 20


def kept_bytes(device: torch.device) -> int:
    """Bytes that recorded steps may keep on a GPU, beside the activations of a chunk."""
    return int(torch.cuda.get_device_properties(device).total_memory * _KEPT_SHARE)


def forget_peak_memory(device: torch.device) -> None:
    """Reset `peak_memory_bytes`. Only a GPU can do so: the peak of a process stays."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory that was ever in use: by tensors on a GPU, or on a CPU by the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if resource is None:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
