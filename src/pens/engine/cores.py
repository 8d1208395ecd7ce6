# SPDX-License-Identifier: Apache-2.0
"""Shares the models of a stack among a CPU's cores: each core computes whole updates of its part of the models.

PyTorch's own threads share every single operation, and wait for each other after each one, spinning. Where other
processes keep the cores busy, a thread that the system has suspended keeps the other threads spinning, operation after
operation: a run of small networks took thirty times as long. Peers are independent, so pens shares whole updates
instead: there is one thread per core, each thread computes alone, and no thread waits before the end. Where there is
too little to share, one thread computes everything (`one_thread`). It changes no bit of a model which thread computes
it (law 3): a result depends neither on timing nor on the number of cores.

Freed memory is kept, too. By default the C library returns a freed megabyte to the system and asks for it again, page
by page, in the next operation, which took a tenth of a step's time. `_keep_memory` tells the C library to keep it.

Calling a network writes tensors into its module for the time of the call. Each thread therefore has its own copy.
"""

from __future__ import annotations

import ctypes
import math
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch

from pens.engine.functional import StackedNetwork
from pens.processors import cpu_quota

C = TypeVar("C")
T = TypeVar("T")


class Cores:
    """Threads that compute parts of a stack, each with a copy of the network: as many as PyTorch may use, but no more
    than the process's quota is worth. There are none for a GPU, or where there is only one core."""

    def __init__(self, network: StackedNetwork) -> None:
        self.count = 1
        if network.device.type == "cpu":
            self.count = torch.get_num_threads()
            if (quota := cpu_quota()) is not None:  # PyTorch ignores quotas
                self.count = max(1, min(self.count, math.ceil(quota)))
            _keep_memory()
        self._networks = [network]
        self._threads: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[StackedNetwork, C], T], chunks: Sequence[C], share: bool = True) -> list[T]:
        """The results of `work` for all chunks, in their order. `share`: whether several threads may work."""
        with one_thread() if self._networks[0].device.type == "cpu" else nullcontext():
            if self.count == 1 or len(chunks) == 1 or not share:
                return [work(self._networks[0], chunk) for chunk in chunks]
            if self._threads is None:
                self._networks += [self._networks[0].copied() for _ in range(self.count - 1)]
                self._threads = ThreadPoolExecutor(self.count, "pens", initializer=torch.set_num_threads, initargs=(1,))

            def part(core: int) -> list[T]:
                return [work(self._networks[core], chunk) for chunk in chunks[core :: self.count]]

            shares = list(self._threads.map(part, range(self.count)))
            return [shares[i % self.count][i // self.count] for i in range(len(chunks))]


@contextmanager
def one_thread() -> Iterator[None]:
    """Within this context PyTorch computes on the calling thread alone. PyTorch keeps its number of threads for each
    thread, but the library behind its matrix products keeps one for the whole process: so both are set here, and
    restored at the end."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _keep_memory() -> None:
    """Make glibc keep freed memory, for the whole process: M_TRIM_THRESHOLD, and M_MMAP_THRESHOLD at its maximum."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 1 << 30)
        libc.mallopt(-3, 32 << 20)
