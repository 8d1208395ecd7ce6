"""Cores share the models of a stack: each takes its part, from the first step of an update to the last.

PyTorch's own threads share out every single operation, and wait for each other after each. Peers are independent, so
whole updates can be shared out instead: one thread per core, each of which computes alone, and nobody waits until the
end. Who computes a model changes no bit of it (law 3): a result depends neither on timing nor on the number of cores.

Memory stays where it is, too. By default the C library hands a freed megabyte back to the system and asks for it again
for the next operation, page by page: a tenth of a step's time. It is told to keep it.

Calling a network writes tensors into its module for the time of the call. Each thread therefore has its own copy.
"""

from __future__ import annotations

import copy
import ctypes
import platform
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch

from pens.engine.network import StackedNetwork

T = TypeVar("T")


class Cores:
    """As many threads as PyTorch may use, each with a copy of a network; without a second core, or on a GPU, none."""

    def __init__(self, network: StackedNetwork) -> None:
        self.count = torch.get_num_threads() if network.device.type == "cpu" else 1
        if network.device.type == "cpu":
            _keep_memory()
        self._networks = [network, *(copy.deepcopy(network) for _ in range(self.count - 1))]
        self._threads: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[StackedNetwork, range], T], chunks: Sequence[range]) -> list[T]:
        """`work` of each chunk, in their order."""
        with _alone() if self.count > 1 else nullcontext():
            if self.count == 1 or len(chunks) == 1:
                return [work(self._networks[0], chunk) for chunk in chunks]
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.count, "pens", initializer=torch.set_num_threads, initargs=(1,))

            def share(core: int) -> list[T]:
                return [work(self._networks[core], chunk) for chunk in chunks[core :: self.count]]

            shares = list(self._threads.map(share, range(self.count)))
            return [shares[i % self.count][i // self.count] for i in range(len(chunks))]


@contextmanager
def _alone() -> Iterator[None]:
    """PyTorch computes on the thread that calls it. Its number of threads is a setting of each thread, but that of the
    library behind its matrix products is one of the whole process: so it is changed here, too, and put back."""
    before = torch.get_num_threads()
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
