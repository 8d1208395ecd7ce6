# SPDX-License-Identifier: Apache-2.0
"""Measures what a device can do, for `pens bench`: the loop beside the stack, in one run.

Training, scoring, evaluation and merging are measured. A peer-step is one optimizer step of one peer's network on one
batch. Rates are medians over repeated calls; each call ends by reading numbers back, so that the device has finished.
TFLOP/s count the operations of the network as its author wrote it. They are compared with the rate of a large matrix
product, measured on the same device in the same run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from pens.data.samples import Array, Samples
from pens.engine.batches import SampleStack
from pens.engine.costs import layer_costs
from pens.engine.devices import device_name, peak_memory_bytes, resolve_device
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import new_engine
from pens.errors import SettingsError
from pens.nets import NetFactory, net_factory
from pens.settings.schema import EngineSettings

SHAPES = {"digits": (1, 8, 8), "fashion-mnist": (1, 28, 28), "cifar-10": (3, 32, 32)}
_MERGED = 21  # a peer's own model and n_peers = 20 others


@dataclass(frozen=True)
class BenchSettings:
    """What to measure: a network, and how many peers, samples and seconds."""

    factory: NetFactory
    shape: tuple[int, ...]
    peers: int
    samples: int
    batch_size: int
    device: str
    engine: EngineSettings
    seconds: float
    """How long each measurement takes."""
    tokens: int | None = None
    """Inputs are whole numbers below this; None: inputs are real numbers."""


@dataclass(frozen=True)
class Row:
    """The rates of one operation, per second, by the loop and by the stack."""

    operation: str
    unit: str
    loop: float
    stack: float
    tflops: float | None
    """The stack's TFLOP/s; None for operations without multiplications."""


@dataclass(frozen=True)
class BenchResult:
    """What was measured on one device."""

    device: str
    network: str
    num_parameters: int
    layers: list[tuple[str, str, str]]
    """(name, class, how it is computed) of each layer."""
    costs: dict[str, float]
    """Seconds that each layer takes in a training step of all peers, by the layer's name."""
    peak_tflops: float
    rows: list[Row]
    peak_memory_bytes: int


def run_bench(settings: BenchSettings) -> BenchResult:
    """Measure a network on a device."""
    for name, least in (("peers", 1), ("samples", 1), ("batch_size", 1), ("tokens", 1), ("seconds", 0)):
        value = getattr(settings, name)
        if value is not None and not value >= least:
            raise SettingsError(f"--{name.replace('_', '-')} {value}: give at least {least}")
    device = resolve_device(settings.device)
    classes = _num_outputs(settings, device)
    data = _random_data(settings, settings.peers, classes, device)
    tests = _random_data(settings, 1, classes, device)
    example = data.x[0, :3] if settings.samples > 2 else data.x[0, :1].expand(3, *settings.shape)
    stack, loop = (
        new_engine(settings.factory, example, classes, settings.engine.model_copy(update={"backend": b}), math.inf)
        for b in ("stack", "loop")
    )
    network = stack.network
    models = ModelStack(network.size, device)
    first = torch.stack([network.new_row(p) for p in range(settings.peers)]).to(device)
    rows, slots = models.add(first), list(range(settings.peers))
    recipe = Recipe("adam", 1e-3, 0.0, 0.0, settings.batch_size)
    forward, training = count_flops(settings.factory, example)

    def rate(work: Callable[[], object], amount: float) -> float:
        return _rate(work, amount, settings.seconds)

    steps = settings.peers * data.steps_per_epoch(data.fitting(settings.batch_size))
    trained = [rate(lambda e=e: e.train(first, data, slots, slots, 1, recipe).loss, steps) for e in (loop, stack)]  # type: ignore[misc]
    samples = settings.peers * settings.samples
    scored = [rate(lambda e=e: e.evaluate(models, rows, data, slots), samples) for e in (loop, stack)]  # type: ignore[misc]
    tested = [rate(lambda e=e: e.evaluate(models, rows, tests, [0] * len(rows)), samples) for e in (loop, stack)]  # type: ignore[misc]
    groups = [[rows[(p + i) % len(rows)] for i in range(_MERGED)] for p in slots]
    merged = [
        rate(lambda: [models.read(g).mean(0).sum().item() for g in groups], len(groups)),
        rate(lambda: models.mix(groups).sum().item(), len(groups)),
    ]
    per_step = training * data.fitting(settings.batch_size)
    return BenchResult(
        device=device_name(device),
        network=network.name,
        num_parameters=network.size,
        layers=network.paths(),
        costs=layer_costs(network, first, network.features(data.x[:, : settings.batch_size])),
        peak_tflops=_matmul_peak(device, settings.seconds),
        rows=[
            Row("training", "peer-steps", trained[0], trained[1], trained[1] * per_step / 1e12),
            Row("scoring", "samples", scored[0], scored[1], scored[1] * forward / 1e12),
            Row("evaluation", "samples", tested[0], tested[1], tested[1] * forward / 1e12),
            Row(f"merging {_MERGED} models", "merges", merged[0], merged[1], None),
        ],
        peak_memory_bytes=peak_memory_bytes(device),
    )


def builtin_factory(name: str) -> NetFactory:
    """The factory of one of the built-in networks, by the name of its data set."""
    if name not in SHAPES:
        raise SettingsError(f"unknown network {name!r}: choose from {', '.join(SHAPES)}, or give --model FILE:NAME")
    return net_factory("auto", name, SHAPES[name], num_classes=10)


def count_flops(factory: NetFactory, example: Tensor) -> tuple[float, float]:
    """Floating-point operations for one sample: (forward, forward and backward)."""
    module = factory().float().to(example.device)
    with FlopCounterMode(display=False) as forward:
        loss = module(example).sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    per_sample = forward.get_total_flops() / len(example)
    return per_sample, per_sample + backward.get_total_flops() / len(example)


def _num_outputs(settings: BenchSettings, device: torch.device) -> int:
    """How many class scores the network gives. Networks with fewer than two are refused."""
    generator = np.random.default_rng(0)
    inputs = Samples(_inputs(generator, (3, *settings.shape), settings.tokens), np.zeros(3, np.int64))
    return StackedNetwork(settings.factory, SampleStack([inputs], device).x[0], 2, stacked=False).num_outputs


def _random_data(settings: BenchSettings, holders: int, classes: int, device: torch.device) -> SampleStack:
    generator = np.random.default_rng(0)
    count = settings.samples
    return SampleStack(
        [
            Samples(
                _inputs(generator, (count, *settings.shape), settings.tokens),
                generator.integers(0, classes, count),
            )
            for _ in range(holders)
        ],
        device,
    )


def _inputs(generator: np.random.Generator, shape: tuple[int, ...], tokens: int | None) -> Array:
    return generator.integers(0, tokens, shape) if tokens else generator.normal(size=shape).astype(np.float32)


def _rate(work: Callable[[], object], amount: float, seconds: float) -> float:
    """How much of `amount` is done per second: the median over repeated calls, after one call to warm up."""
    work()
    rates: list[float] = []
    begun = time.perf_counter()
    while not rates or time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        work()
        rates.append(amount / (time.perf_counter() - before))
    return float(np.median(rates))


def _matmul_peak(device: torch.device, seconds: float) -> float:
    """TFLOP/s of a large product of fp32 matrices, in the precision that was set."""
    size = 8192 if device.type == "cuda" else 2048
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    return _rate(lambda: (a @ b)[0, 0].item(), 2 * size**3 / 1e12, seconds)
