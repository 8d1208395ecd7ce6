# SPDX-License-Identifier: Apache-2.0
"""Laws 1 and 3 for the compiled kernels, and what happens where nothing can be compiled."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from pens.engine import compiled, training
from pens.engine.compiled import Kernels, Shape, can_compile, kernels
from pens.engine.functional import StackedNetwork
from pens.engine.optimizers import Recipe
from pens.engine.stack import ModelStack
from pens.engine.training import LoopEngine, StackEngine, new_engine
from pens.errors import DeviceError
from pens.nets import DigitsCNN, NetFactory, PaperCNN
from pens.settings.schema import EngineSettings
from tests.engine.networks import IMAGE_NETWORKS
from tests.engine.test_training import (
    CPU,
    EQUAL,
    RECIPES,
    UNEQUAL,
    assert_same_moments,
    engines,
    first_rows,
    holders,
    train,
)

compiles = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="there is no C compiler on this machine"
)


def compiled_network(factory: NetFactory, example: Tensor) -> StackedNetwork:
    network = StackedNetwork(factory, example, 10, levels=("compiled",))
    assert network.level == "compiled"
    return network


# --- the kernels ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["AVX512", "AVX2", "any"])
def some_kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kernels:
    """For each width of vectors that this machine has."""
    here = torch.backends.cpu.get_cpu_capability()
    if request.param == "AVX512" and here != "AVX512":
        pytest.skip("no AVX-512 here")
    if request.param == "AVX2" and not here.startswith("AVX"):
        pytest.skip("no AVX2 here")
    library = tmp_path_factory.mktemp("native") / "kernels.so"
    compiled._compile((*compiled._FLAGS, *compiled._INSTRUCTIONS.get(request.param, ())), library)
    return Kernels(library)


@compiles
@given(
    batch=st.integers(1, 10),
    channels=st.integers(1, 20),
    out=st.integers(1, 70),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    stride=st.tuples(st.integers(1, 3), st.integers(1, 2)),
    padding=st.tuples(st.integers(0, 2), st.integers(0, 3)),
    dilation=st.tuples(st.integers(1, 2), st.integers(1, 3)),
    pool=st.sampled_from([1, 2]),
    relu=st.booleans(),
    last=st.booleans(),
)
def test_the_kernels_are_convolution_relu_and_pooling(
    some_kernels: Kernels,
    batch: int,
    channels: int,
    out: int,
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    pool: int,
    relu: bool,
    last: bool,
) -> None:
    after = [
        ((s + 2 * p - d * (k - 1) - 1) // t + 1) // pool
        for s, p, d, k, t in zip(size, padding, dilation, kernel, stride, strict=True)
    ]
    assume(min(after) > 0)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, batch, *size, channels, generator=generator).permute(0, 1, 4, 2, 3)
    x = x if last else x.contiguous()
    w = torch.randn(2, out, channels, *kernel, generator=generator) / (channels * kernel[0] * kernel[1]) ** 0.5
    b = torch.randn(2, out, generator=generator)
    shape = Shape(batch, channels, *size, out, *kernel, *stride, *padding, *dilation, pool, int(relu), *after)
    y, source = some_kernels.forward(shape, x, w, b)
    g = torch.randn(y.shape, generator=generator)
    dx, dw, db = some_kernels.backward(shape, x, w, g, source, with_input=True)
    nothing, *same = some_kernels.backward(shape, x, w, g, source, with_input=False)
    assert dx is not None
    assert nothing is None
    assert torch.equal(same[0], dw)
    assert torch.equal(same[1], db)
    for k in range(2):
        leaves = [t[k].double().requires_grad_() for t in (x, w, b)]
        plain = F.conv2d(*leaves, stride=stride, padding=padding, dilation=dilation)  # type: ignore[call-overload]
        plain = plain.relu() if relu else plain
        plain = F.max_pool2d(plain, 2) if pool == 2 else plain
        expected = (plain, *torch.autograd.grad(plain, leaves, g[k].permute(0, 3, 1, 2).double()))
        mine = (y[k].permute(0, 3, 1, 2), dx[k].permute(0, 3, 1, 2), dw[k], db[k])
        for a, e in zip(mine, expected, strict=True):
            torch.testing.assert_close(a, e.float(), rtol=1e-4, atol=1e-4)


@compiles
@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_what_is_not_a_number_is_never_pooled_away(some_kernels: Kernels, place: tuple[int, int]) -> None:
    x = torch.ones(1, 1, 1, 2, 2)
    x[0, 0, 0, place[0], place[1]] = torch.nan
    shape = Shape(1, 1, 2, 2, 3, 1, 1, 1, 1, 0, 0, 1, 1, 2, 1, 1, 1)
    assert some_kernels.forward(shape, x, torch.ones(1, 3, 1, 1, 1), torch.zeros(1, 3))[0].isnan().all()


# --- networks ---------------------------------------------------------------------------------------------------------


class Functional(nn.Module):
    """ReLU and pooling as functions, which no pattern sees."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 9, 3)
        self.out = nn.Linear(9, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.max_pool2d(F.relu(self.first(x)), 2)
        logits: Tensor = self.out(F.max_pool2d(F.relu(self.second(hidden)), 2).flatten(1))
        return logits


NETWORKS: dict[str, tuple[NetFactory, tuple[int, ...]]] = {
    **{name: (factory, (1, 8, 8)) for name, factory in IMAGE_NETWORKS.items()},
    "functional": (Functional, (1, 8, 8)),
    "cifar-10": (lambda: PaperCNN(3, 32), (3, 32, 32)),
    "fashion-mnist": (lambda: PaperCNN(1, 28), (1, 28, 28)),
}


def assert_same_training(name: str, counts: tuple[int, ...], recipe: Recipe) -> None:
    factory, shape = NETWORKS[name]
    data = holders(counts, shape)
    stack = StackEngine(compiled_network(factory, data.x[0, :3]), 1 << 30)
    loop = LoopEngine(StackedNetwork(factory, data.x[0, :3], 10, stacked=False))
    together, one_by_one = train(stack, data, recipe), train(loop, data, recipe)
    torch.testing.assert_close(together.rows, one_by_one.rows, rtol=1e-3, atol=2e-4)
    np.testing.assert_allclose(together.loss, one_by_one.loss, rtol=1e-3, atol=1e-4)
    models, slots = ModelStack(stack.network.size, CPU), list(range(len(counts)))
    rows = models.add(together.rows)
    a, b = stack.evaluate(models, rows, data, slots), loop.evaluate(models, rows, data, slots)
    np.testing.assert_allclose(a.loss, b.loss, rtol=1e-4, atol=1e-5)


@compiles
@pytest.mark.parametrize("counts", [EQUAL, UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("name", list(NETWORKS))
def test_a_compiled_stack_trains_like_its_models_one_by_one(name: str, counts: tuple[int, ...]) -> None:
    assert_same_training(name, counts, RECIPES[3])


@compiles
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_all_optimizers_train_a_compiled_stack_like_its_models_one_by_one(recipe: Recipe) -> None:
    assert_same_training("digits", UNEQUAL, recipe)


@compiles
def test_a_convolution_takes_in_what_it_can() -> None:
    def make() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 4, 1), nn.ReLU(), nn.AvgPool2d(2),
            nn.Conv2d(4, 4, 1), nn.Tanh(), nn.Conv2d(4, 4, 1, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip

    paths = [path for *_, path in compiled_network(make, holders((3,)).x[0]).paths()]
    kernel, part, own = paths[0], paths[1], paths[5]
    assert "one kernel" in kernel
    assert "part of" in part
    assert paths == [kernel, part, part, kernel, part, own, kernel, own, own, own, own, own]


# --- no bit -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("restored_threads")
@pytest.mark.parametrize("level", ["sliced", pytest.param("compiled", marks=compiles)])
@pytest.mark.parametrize("name", ["digits", "dropout", "running scale", "linear"])
def test_no_bit_depends_on_cores_or_cuts(name: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_SHARE_BYTES", 1)  # small as they are, all cores take part
    data = holders((10, 3, 7, 4, 9))
    network = StackedNetwork(IMAGE_NETWORKS[name], data.x[0, :3], 10, levels=(level,))  # type: ignore[arg-type]
    per_model = network.bytes_per_sample * 4 + 20 * network.size
    models, slots = ModelStack(network.size, CPU), list(range(5))
    rows: list[int] = []
    reference = scores = None
    for cores in (1, 2, 3):
        for fitting in (1, 2, 5):
            torch.set_num_threads(cores)
            engine = StackEngine(network, cores * fitting * per_model)
            trained = train(engine, data, RECIPES[1])
            assert torch.get_num_threads() == cores
            rows = rows or models.add(trained.rows)
            evaluated = engine.evaluate(models, rows, data, slots)
            reference = trained if reference is None else reference
            scores = evaluated if scores is None else scores
            assert torch.equal(trained.rows, reference.rows)
            np.testing.assert_array_equal(trained.loss, reference.loss)
            np.testing.assert_array_equal(evaluated.loss, scores.loss)
            np.testing.assert_array_equal(evaluated.accuracy, scores.accuracy)


@compiles
@pytest.mark.parametrize("recipe", RECIPES[1::2], ids=str)
def test_optimizers_remember_in_a_compiled_stack_as_one_by_one(recipe: Recipe) -> None:
    data = holders((10, 3, 7))
    stack = StackEngine(compiled_network(DigitsCNN, data.x[0, :3]), 1 << 30)
    assert_same_moments(stack, engines(DigitsCNN, data)[1], data, recipe)


@compiles
def test_one_peers_bad_numbers_stay_its_own() -> None:
    data = holders((8, 8, 8))
    stack = StackEngine(compiled_network(DigitsCNN, data.x[0, :3]), 1 << 30)
    clean = train(stack, data, RECIPES[0])
    data.x[1, 3] = torch.nan
    dirty = train(stack, data, RECIPES[0])
    assert np.isnan(dirty.loss).tolist() == [False, True, False]
    assert torch.equal(dirty.rows[[0, 2]], clean.rows[[0, 2]])


@compiles
def test_a_models_result_does_not_depend_on_other_models() -> None:
    data = holders((10, 3, 7))
    stack = StackEngine(compiled_network(DigitsCNN, data.x[0, :3]), 1 << 30)
    rows = first_rows(stack.network, 3)
    together = stack.train(rows, data, [0, 1, 2], [7, 8, 9], 2, RECIPES[0])
    alone = stack.train(rows[2:], data, [2], [9], 2, RECIPES[0])
    assert torch.equal(alone.rows[0], together.rows[2])


# --- compiling --------------------------------------------------------------------------------------------------------


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(pooch, "os_cache", lambda _name: tmp_path)
    kernels.cache_clear()
    yield tmp_path
    kernels.cache_clear()


@compiles
def test_what_was_compiled_is_kept(empty_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels()
    assert len(list((empty_cache / "native").iterdir())) == 1
    kernels.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    kernels()


@pytest.mark.parametrize("fault", ["no compiler", "a compiler that fails", "a cache that cannot be written"])
def test_without_kernels_a_run_goes_on_unless_they_were_asked_for(
    fault: str, empty_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if fault == "a cache that cannot be written":
        (empty_cache / "native").write_text("a file in the folder's place")
    found = None if fault == "no compiler" else "false"
    monkeypatch.setattr(shutil, "which", lambda _name: found)
    with caplog.at_level(logging.WARNING):
        assert not can_compile("auto", 1e12)
    assert "going on without" in caplog.text
    with pytest.raises(DeviceError, match="kernels for this CPU"):
        can_compile("always", 0)
    engine = new_engine(DigitsCNN, holders((3,)).x[0], 10, EngineSettings(), 1e12)
    assert engine.network.level == "sliced"


@compiles
def test_only_a_run_that_repays_it_is_compiled() -> None:
    example = holders((3,)).x[0]

    def level(choice: str, num_visits: float) -> str:
        settings = EngineSettings.model_validate({"compile": choice})
        return new_engine(DigitsCNN, example, 10, settings, num_visits).network.level

    assert [level("auto", n) for n in (1e3, 1e7)] == ["sliced", "compiled"]
    assert [level("always", n) for n in (1e3, 1e7)] == ["compiled", "compiled"]
    assert [level("never", n) for n in (1e3, 1e7)] == ["sliced", "sliced"]
