# SPDX-License-Identifier: Apache-2.0
"""Runs one nn.Module as a function of rows: a model is one row of numbers, a stack of models is a matrix.

    row = [ trained parameters | parameters without a gradient and float buffers ]

Training changes the first part. Merging averages the whole row, so buffers (running averages, for instance) are merged
like weights. Buffers that a forward pass updates in training are written back to the peer's row. Integer buffers cannot
be averaged: they must be constants, and stay with the module. The one exception is the counter of batch normalisation.
What the author froze is in no row: all peers share it (`pens.engine.frozen`).

A stack of models can run any module whose output for one sample depends on that sample alone, apart from PyTorch's
layers of batch normalisation (`pens.engine.batch_norm`). Every network is tried out on real samples before any work
starts, and refused with a reason where this does not hold.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from pens.engine.attention import plain_attention
from pens.engine.batch_norm import COUNTER, batch_norm_layers, batch_norm_tensors, refuse_synchronised
from pens.engine.calls import Call
from pens.engine.devices import exact_products
from pens.engine.frozen import find_cut, frozen_modules, frozen_names, run_peer_by_peer, set_mode
from pens.engine.gradient_buffers import GradientBuffers
from pens.engine.keyed import KeyedDropoutMode
from pens.engine.layout import Layout
from pens.engine.lowering import PATHS, Level, kernel_orders, lower
from pens.engine.own_modules import made
from pens.engine.trials import alone, try_plain, why_not_stacked
from pens.errors import ModelError
from pens.nets import NetFactory
from pens.tasks.task import Outputs, class_scores

_GPU_ALIGNMENT = 16  # bytes
_FROZEN_SEED = 0x5EED  # of what is frozen, which must be the same in all processes


class StackedNetwork:
    """A network that is applied to K rows and K batches at once, or to one row (`single`)."""

    @exact_products()
    def __init__(
        self,
        factory: NetFactory,
        example: Tensor,
        num_classes: int | Outputs,
        stacked: bool = True,
        levels: Sequence[Level] = ("sliced", "plain"),
        precision: str = "tf32",
        given: nn.Module | None = None,
    ) -> None:
        """`example` [sample, ...]: a few real inputs, on which the network is tried out.

        `num_classes`: so many class scores it has to give for a sample, or what else it has to return.

        `levels`: the levels of lowering to try; the first that gives the right answer is taken.
        `given`: the `whole` of another network from this factory, so that both share what is frozen.
        """
        self.device = example.device
        module = given or made(factory, _FROZEN_SEED).to(self.device)
        refuse_synchronised(module)
        self._factory, self.whole, self._precision = factory, module, precision
        self._shared = frozen_names(module)
        self.cut = find_cut(module, example) if stacked else None
        """Where the network is cut into what is computed once per sample, and what trains; None: nowhere."""
        if self.cut:
            example, module = self.cut.compute(example), self.cut.rest
        self._never_run = module
        self._recurrent = _weights_of_recurrent_layers(module)
        self.name = type(module).__name__
        normalising = [layer for name, layer in batch_norm_layers(module).items() if not is_frozen_in(module, name)]
        self.has_batch_norm = bool(normalising)
        """Whether a batch's real samples must be told from padding in training (`logits`)."""
        self.evaluates_as_one_batch = any(layer.running_mean is None for layer in normalising)
        """Whether all samples of an evaluation are one batch, whose real samples must be told from padding."""
        key = self.a_key()
        self._keyed = False
        """Whether functions that drop numbers in training are answered by masks from the peer's key."""
        self._install("plain")
        self.draws = {True: False, False: False}
        """{whether in training: whether the network draws random numbers that do not come from the key}"""
        wanted = num_classes if isinstance(num_classes, Outputs) else class_scores(num_classes)
        self.num_outputs, used = try_plain(self, example, key, wanted)
        """Numbers that the network gives for a sample, or at each position: one for each class, or more."""
        self.stored = _layout(module, used)
        """The layout of rows as they are stored, sent and merged."""
        self.size = self.stored.size
        names = {name for name, _ in module.named_parameters()} - self._shared
        self.may_train = tuple(place for place in (*self.stored.trained, *self.stored.kept) if place.name in names)
        """The places of all parameters that are not frozen, also of those that the trial did not use. One by one, a
        network may decide by values or at random which of them it uses."""
        if not stacked:
            self._refuse_other_first_weights()
        self.bytes_per_sample = _saved_bytes(self, example, key, stacked)
        if stacked:
            self._choose_level(levels, example, key)
        if self.level == "sliced":  # slices are kept for the backward pass, so they count, too
            self.bytes_per_sample = _saved_bytes(self, example, key, stacked)
        self.in_work = self.stored.in_work(kernel_orders(self._modules[True]))
        """The layout of rows while an update or an evaluation runs."""
        self._into_work = self.in_work.columns_of(self.stored).to(self.device)
        self._out_of_work = self.stored.columns_of(self.in_work).to(self.device)

    def _choose_level(self, levels: Sequence[Level], example: Tensor, key: Tensor) -> None:
        """Lower the network to the first level at which it still gives the right answer."""
        rows = torch.stack([self.new_row(s) for s in (1, 2)]).to(self.device)
        expected, reason = alone(self, rows, example, key), None
        for level in levels:
            self._install(level)
            reason = why_not_stacked(self, rows, example, key, expected)
            if reason is None:
                return
        raise ModelError(reason or "no level of lowering was given: this is a fault of pens, please report it")

    def _refuse_other_first_weights(self) -> None:
        """Refuse a factory whose first weights do not come from the seed alone."""
        one, two = (self.new_row(1).nan_to_num() for _ in range(2))
        if not torch.equal(one, two):
            raise ModelError(
                f"{self.name} has other first weights when it is made again with the same seed, so that no run could "
                "be repeated: draw them by PyTorch's generator (torch.randn, nn.init), and not by Python's or NumPy's"
            )

    def copied(self) -> StackedNetwork:
        """A copy for another thread: a call writes tensors into the module, and the user's code may keep some there."""
        other = copy.copy(self)
        other._install(self.level)
        return other

    def _install(self, level: Level) -> None:
        """Make two copies of the module, one for training and one for evaluation, lowered to a level."""
        self.level = level
        self._current = {mode: Call() for mode in (True, False)}
        self._dropouts = KeyedDropoutMode(self._current[True])
        self.gradient_buffers = GradientBuffers()
        """Where a training step wants its gradients to lie."""
        self._modules = {
            mode: set_mode(lower(self._never_run, call, self.gradient_buffers, level, self._precision), mode)
            for mode, call in self._current.items()
        }
        for mode, call in self._current.items():
            run_peer_by_peer(self._modules[mode], call)

    def features(self, x: Tensor) -> Tensor:
        """What a cut network takes in place of its inputs.  [peer, sample, ...] → [peer, sample, ...]"""
        if self.cut is None:
            return x
        features = self.cut.compute(x.flatten(0, 1))
        return features.view(*x.shape[:2], *features.shape[1:])

    def layers_in_training(self) -> dict[str, nn.Module]:
        """The innermost modules by name, as they run in training: replacement layers, or the author's layers."""
        modules = self._modules[True].named_modules()
        return {name: module for name, module in modules if next(module.children(), None) is None}

    def paths(self) -> list[tuple[str, str, str]]:
        """How each layer is computed: (name, layer, by its replacement layer or by its own code under vmap)."""
        plain, frozen = dict(made(self._factory, like=self.whole).named_modules()), set(frozen_modules(self.whole))
        paths = []
        for name, layer in self.layers_in_training().items():
            if name in plain:
                path = "its own code, under vmap"
                if is_frozen_in(self.whole, name, frozen):
                    path = "frozen: once per sample" if self.cut else "frozen: its own code"
                    paths.append((name, type(plain[name]).__name__, path))
                    continue
                if type(layer) is not type(plain[name]):
                    path = PATHS[type(layer).__name__]
                paths.append((name, type(plain[name]).__name__, path))
        return paths

    def a_key(self) -> Tensor:
        """A key for random numbers, for calls whose random numbers do not matter.  []"""
        return torch.zeros((), dtype=torch.int64, device=self.device)

    def new_row(self, seed: int) -> Tensor:
        """The weights of a fresh network, initialised from a seed.  [size]"""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = made(self._factory, like=self.whole)
        return self.row_of(module)

    def row_of(self, module: nn.Module) -> Tensor:
        """A module's tensors as one row.  [size]"""
        tensors = dict(module.named_parameters()) | dict(module.named_buffers())
        places = (*self.stored.trained, *self.stored.kept)
        return torch.cat([tensors[p.name].detach().reshape(-1).float() for p in places])

    def tensors(self, rows: Tensor) -> dict[str, Tensor]:
        """Views of the rows' tensors by name.  [peer, size] → {name: [peer, *shape]}, or without the peer axis"""
        return self.stored.tensors(rows)

    def to_work(self, rows: Tensor) -> Tensor:
        """Copies of stored rows in the layout of rows in work.  [peer, size] → [peer, in_work.size]"""
        return rows.index_select(1, self._into_work)

    def from_work(self, rows: Tensor) -> Tensor:
        """Copies of rows in work in the layout of stored rows.  [peer, in_work.size] → [peer, size]"""
        return rows.index_select(1, self._out_of_work)

    def state(self, rows: Tensor) -> dict[str, Tensor]:
        """Models in the form that `load_state_dict` reads: with constants, and with shared parameters under all of
        their names.  [peer, size] → {name: [peer, *shape]}"""
        tensors, template = self.tensors(rows), self.whole
        shared = (*template.named_parameters(), *template.named_buffers())
        constants = {name: t.detach().expand(len(rows), *t.shape) for name, t in shared}
        named = [*template.named_parameters(remove_duplicate=False), *template.named_buffers(remove_duplicate=False)]
        first_name: dict[int, str] = {}
        for name, tensor in named:
            first_name.setdefault(id(tensor), name)
        values, wanted = constants | tensors, template.state_dict().keys()
        found = {name: values[first_name[id(tensor)]] for name, tensor in named if name in wanted}
        counters = {n for n in found if n.rpartition(".")[2] == COUNTER and found[n].is_floating_point()}
        return found | {name: found[name].round().long() for name in counters & self.stored.batch_norm}

    def logits(
        self, tensors: dict[str, Tensor], x: Tensor, keys: Tensor, train: bool, real: Tensor | None = None
    ) -> Tensor:
        """The scores of each peer's model for each peer's batch.

        tensors {name: [peer, *shape]}, x [peer, batch, ...], keys [peer] → [peer, batch, class]. Buffers that the
        forward pass changed are written back into `tensors`. `real` [peer, batch] bool: which samples are no padding;
        None: all.
        """
        told = None if real is None else 0
        with plain_attention():
            outputs, changed = vmap(self._call, (0, 0, 0, None, None, told))(tensors, x, keys, train, True, real)
        self._write_back(tensors, changed)
        return outputs

    def single(self, tensors: dict[str, Tensor], x: Tensor, key: Tensor, train: bool, seeded: bool = True) -> Tensor:
        """The scores of one model for one batch.  tensors {name: shape}, x [batch, ...] → [batch, class]

        `seeded`: seed PyTorch's generator from the key, so that random numbers that the network draws by itself come
        from the key, too. It must be False where several threads run networks, because they share that generator.
        """
        if not seeded:
            outputs, changed = self._call(tensors, x, key, train)
            self._write_back(tensors, changed)
            return outputs
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            torch.manual_seed(int(key))
            outputs, changed = self._call(tensors, x, key, train)
        self._write_back(tensors, changed)
        return outputs

    def _call(
        self,
        tensors: dict[str, Tensor],
        x: Tensor,
        key: Tensor,
        train: bool,
        stacked: bool = False,
        real: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        call, inputs = self._current[train], dict(tensors) if stacked else self._lent(tensors)
        call.key, call.draws, call.stacked, call.real = key, 0, stacked, real
        with self._dropouts if self._keyed and train else nullcontext():
            outputs: Tensor = functional_call(self._modules[train], inputs, (x,))
        if isinstance(outputs, Tensor) and outputs.dtype in (torch.bfloat16, torch.float16):
            outputs = outputs.float()
        call.key = call.real = None
        changed = {n: t for n, t in inputs.items() if t is not tensors[n]} if train else {}
        return outputs, changed

    def _lent(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """One model's tensors as a GPU's libraries can use them: they read sixteen bytes at once, and rows as they are
        stored may have a tensor anywhere; and recurrent layers move their weights to memory of their own, where no
        optimizer would find them. Such tensors are copied."""
        if self.device.type != "cuda":
            return dict(tensors)
        moved = self._recurrent
        return {n: t.clone() if n in moved or t.data_ptr() % _GPU_ALIGNMENT else t for n, t in tensors.items()}

    @staticmethod
    def _write_back(tensors: dict[str, Tensor], changed: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, value in changed.items():
                tensors[name].copy_(value)


def is_frozen_in(module: nn.Module, name: str, frozen: Collection[str] | None = None) -> bool:
    """Whether a module within a network is part of a frozen one."""
    return any(f"{name}.".startswith(f"{outer}.") for outer in frozen or frozen_modules(module))


def _weights_of_recurrent_layers(module: nn.Module) -> frozenset[str]:
    """The names of the weights of nn.LSTM, nn.GRU and nn.RNN."""
    layers = ((name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.RNNBase))
    return frozenset(f"{name}.{own}".lstrip(".") for name, layer in layers for own, _ in layer.named_parameters())


def _layout(module: nn.Module, used: set[str]) -> Layout:
    """The layout of stored rows: the tensors that training uses first, then other parameters and float buffers."""
    shared = frozen_names(module)
    parameters = {n: p.shape for n, p in module.named_parameters() if n not in shared}
    trained = {n: shape for n, shape in parameters.items() if n in used}
    kept = {n: shape for n, shape in parameters.items() if n not in used}
    normalising = batch_norm_tensors(module)
    buffers = {n: b for n, b in module.named_buffers() if n not in shared}
    kept |= {n: b.shape for n, b in buffers.items() if b.is_floating_point() or n in normalising}
    return Layout.stored(trained, kept, normalising & (trained.keys() | kept.keys()))


def _saved_bytes(network: StackedNetwork, example: Tensor, key: Tensor, stacked: bool) -> int:
    """Bytes that the forward pass of one sample keeps for the backward pass; the size of chunks follows from it."""
    total = 0

    def count(tensor: Tensor) -> Tensor:
        nonlocal total
        total += tensor.numel() * tensor.element_size()
        return tensor

    batch = example[:2]
    tensors = {n: t.data for n, t in network.tensors(network.new_row(0).to(example.device)).items()}
    for place in network.stored.trained:
        tensors[place.name].requires_grad_()
    weights = 4 * network.size
    with plain_attention(), torch.autograd.graph.saved_tensors_hooks(count, lambda t: t):
        network._call(tensors, batch, key, True, stacked)
    return max(total - weights, 4 * batch[0].numel()) // len(batch) + 1
