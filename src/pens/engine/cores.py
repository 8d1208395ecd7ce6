# SPDX-License-Identifier: Apache-2.0
"""Cores share the models of a stack: each takes its part, from the first step of an update to the last.

PyTorch's own threads share out every single operation, and wait for each other after each, spinning. Where others keep
the cores busy, a thread that has been put aside keeps the others spinning, operation by operation: a run of small
networks took thirty times as long. Peers are independent, so whole updates are shared out instead: one thread per core,
each of which computes alone, and nobody waits until the end; and where there is too little to share, one thread
computes (`one_thread`). Who computes a model changes no bit of it (law 3): a result depends neither on timing nor on
the number of cores.

Memory stays where it is, too. By default the C library hands a freed megabyte back to the system and asks for it again
for the next operation, page by page: a tenth of a step's time. It is told to keep it.

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

T = TypeVar("T")


class Cores:
    """As many threads as PyTorch may use, or as the process's quota is worth, each with a copy of a network; without a
    second core, or on a GPU, none."""

    def __init__(self, network: StackedNetwork) -> None:
        self.count = 1
        if network.device.type == "cpu":
            self.count = torch.get_num_threads()
            if (quota := cpu_quota()) is not None:  # PyTorch does not know of it
                self.count = max(1, min(self.count, math.ceil(quota)))
            _keep_memory()
        self._networks = [network]
        self._threads: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[StackedNetwork, range], T], chunks: Sequence[range], share: bool = True) -> list[T]:
        """`work` of each chunk, in their order. `share`: whether it is worth several cores, and may run on them."""
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
    """PyTorch computes on the thread that calls it. Its number of threads is a setting of each thread, but that of the
    library behind its matrix products is one of the whole process: so it is changed here, too, and put back."""
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
    """A setting of the whole process: glibc's M_TRIM_THRESHOLD, and M_MMAP_THRESHOLD at its highest."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(-1, 1 << 30)
        libc.mallopt(-3, 32 << 20)
