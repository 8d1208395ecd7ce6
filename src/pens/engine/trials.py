# SPDX-License-Identifier: Apache-2.0
"""Trials of a network on real samples, before any work starts: what no engine can train, and what a stack cannot.

`try_plain` runs the module as its author wrote it. `why_not_stacked` compares two models side by side with each alone:
their scores, their gradients and the buffers that they change. The stack's batch is filled up with samples that do not
count, as short batches are, so that nothing may depend on them. PyTorch runs some functions under vmap without an
error and with other gradients (hooks on tensors, for instance), which such a comparison finds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from pens.engine.batch_norm import batch_norm_tensors
from pens.engine.calls import LOOP, Call
from pens.engine.frozen import frozen_names
from pens.engine.layout import Layout
from pens.engine.lowering import Level
from pens.engine.repeats import refuse_what_is_kept
from pens.engine.stumbles import Inside, brief, noted, stumble, warn_of_slow_operations
from pens.errors import ModelError
from pens.tasks.task import Outputs

_MIXING = (
    "a sample's scores may depend on others of its batch through nn.BatchNorm1d, nn.BatchNorm2d and nn.BatchNorm3d "
    "alone; in place of other means, use a normalisation that works on each sample (nn.GroupNorm, nn.LayerNorm, "
    "nn.InstanceNorm2d)"
)
_ROUNDING = 0.03  # relative error that bf16 products may cause; a wrong layer is off by its whole size
_SLOPE, _SCORES, _TESTED = "gradient of ", "scores", "scores in evaluation"


class Tried(Protocol):
    """What trials need of a network (`pens.engine.functional.StackedNetwork`)."""

    name: str
    device: torch.device
    level: Level
    has_batch_norm: bool
    stored: Layout
    draws: dict[bool, bool]
    _keyed: bool
    _never_run: nn.Module
    _modules: dict[bool, nn.Module]
    _current: dict[bool, Call]

    def tensors(self, rows: Tensor) -> dict[str, Tensor]: ...

    def single(self, tensors: dict[str, Tensor], x: Tensor, key: Tensor, train: bool) -> Tensor: ...

    def logits(
        self, tensors: dict[str, Tensor], x: Tensor, keys: Tensor, train: bool, real: Tensor | None = None
    ) -> Tensor: ...

    def _call(
        self, tensors: dict[str, Tensor], x: Tensor, key: Tensor, train: bool
    ) -> tuple[Tensor, dict[str, Tensor]]: ...


def try_plain(network: Tried, example: Tensor, key: Tensor, wanted: Outputs) -> tuple[int, set[str]]:
    """Run the module as it was written, and refuse what no engine can train. Returns the number of scores that it
    gives for a sample, and the names of the parameters that training changes."""
    module, x = network._modules[True], example[:3]
    shared = frozen_names(module)
    tensors = {n: p.detach().clone().requires_grad_() for n, p in module.named_parameters() if n not in shared}
    buffers = {n: b.detach() for n, b in module.named_buffers() if n not in shared}
    tensors |= {n: b.clone() for n, b in buffers.items()}
    before = {n: b.clone() for n, b in buffers.items()}
    memory = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    inside, when = Inside(), ""
    try:
        with inside.following(module, network._modules[False]):
            together = network.single(tensors, x.clone(), key, True)
            if _draws_own_noise(network, tensors, x, key, True):
                network._keyed = True
                together = network.single(tensors, x.clone(), key, True)
            _refuse_form(network, together, x, wanted)
            when = " in evaluation"
            with torch.no_grad():
                tested = network.single(_copies(tensors), x.clone(), key, False)
            _refuse_other_form(network, together, tested)
            refuse_what_is_kept(network, tensors, x, key)
            network.draws = {mode: _draws_own_noise(network, tensors, x, key, mode) for mode in (True, False)}
            mixes = any(_mixes(network, tensors, x, key, mode) for mode in (True, False))
    except ModelError:
        raise
    except Exception as error:  # the user's own code
        raise ModelError(
            f"{network.name} does not run{when} on samples of shape {tuple(example.shape[1:])} and type "
            f"{_type(example)}: {inside.where}{type(error).__name__}: {brief(error)}"
            f"{_about_types(example, str(error))}"
        ) from None
    refuse_nan(network, together, tested)
    _refuse_other_memory(network, tensors, memory)
    if mixes:
        raise ModelError(
            f"{network.name} mixes the samples of a batch, so that peers could not be trained side by side: {_MIXING}"
        )
    counters = batch_norm_tensors(network._never_run)
    for name, buffer in before.items():
        if name not in counters and not buffer.is_floating_point() and not torch.equal(buffer, tensors[name]):
            raise ModelError(
                f"{network.name} changes its integer buffer {name!r} in training, and integers cannot be averaged: "
                "make it a float buffer"
            )
    learned = {n: t for n, t in tensors.items() if t.requires_grad}
    if not learned or not together.requires_grad:
        raise ModelError(
            f"{network.name} has no parameters to train: at least one must have requires_grad and affect the scores"
        )
    gradients = torch.autograd.grad(together.sum(), list(learned.values()), allow_unused=True)
    _refuse_hidden_weights(network, module, tensors, x, key)
    return together.shape[1], {n for n, g in zip(learned, gradients, strict=True) if g is not None}


def _refuse_form(network: Tried, scores: object, x: Tensor, wanted: Outputs) -> None:
    """Refuse what is no row of scores for each sample."""
    if not isinstance(scores, Tensor):
        raise ModelError(
            f"{network.name} returns a {type(scores).__name__}: let forward return one tensor of class scores, "
            "[batch, class]"
        )
    if scores.shape[:1] != x.shape[:1] or not wanted.fits(scores.shape[1:]):
        raise ModelError(
            f"{network.name} returns shape {tuple(scores.shape)} for a batch of {len(x)}: {wanted.expected}"
        )
    if not scores.is_floating_point():
        raise ModelError(
            f"{network.name} returns numbers of type {_type(scores)}: let forward return real numbers, from which a "
            "loss can be computed, as abs() makes them of complex ones"
        )


def _refuse_other_form(network: Tried, trained: Tensor, tested: object) -> None:
    """Refuse a network that returns something else in evaluation than in training."""
    if not isinstance(tested, Tensor):
        returned = f"a {type(tested).__name__}"
    elif tested.shape != trained.shape or not tested.is_floating_point():
        returned = f"shape {tuple(tested.shape)} of type {_type(tested)}"
    else:
        return
    raise ModelError(
        f"{network.name} returns {returned} in evaluation, and shape {tuple(trained.shape)} in training: let forward "
        "return the same scores in both, whatever self.training is"
    )


def _refuse_other_memory(network: Tried, tensors: dict[str, Tensor], memory: dict[str, int]) -> None:
    """Refuse a network that gives a tensor other memory. A peer's tensors are views of its row, which stays."""
    for name, tensor in tensors.items():
        if tensor.data_ptr() != memory[name]:
            raise ModelError(
                f"{network.name} assigns to the .data of its tensor {name!r} in forward, so that the value does not "
                "reach the peer's model: write into the tensor, with torch.no_grad() and clamp_, mul_ or copy_"
            )


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def refuse_nan(network: Tried, *scores: Tensor) -> None:
    """Refuse scores that are NaN. The inputs were checked before (`pens.data.samples`), so the network made them."""
    if any(some.isnan().any() for some in scores):
        raise ModelError(
            f"{network.name} returns NaN for finite inputs before any training, so that no loss can be computed: look "
            "for 0 / 0, for the logarithm or the root of a negative number, for the softmax of a row that is masked as "
            "a whole, and for NaN among its first weights"
        )


def _refuse_hidden_weights(
    network: Tried, module: nn.Module, tensors: dict[str, Tensor], x: Tensor, key: Tensor
) -> None:
    """Refuse a network that computes with its module's own weights, and not with those that are passed in: in its
    forward pass, or in a backward pass that computes the forward pass again."""
    if network.draws[True]:
        return
    found = []
    for change in (0.0, 0.5):
        with _moved(module, change):
            leaves = {n: t.detach().clone().requires_grad_(t.requires_grad) for n, t in tensors.items()}
            learned = [t for t in leaves.values() if t.requires_grad]
            scores = network.single(leaves, x.clone(), key, True)
            slopes = torch.autograd.grad(scores, learned, _slopes(scores), allow_unused=True)
        found.append([scores.detach(), *(torch.zeros(()) if g is None else g for g in slopes)])
    if not all(torch.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) for a, b in zip(*found, strict=True)):
        raise ModelError(
            f"{network.name} does not read its weights from its modules in each forward pass, so that they cannot be "
            "exchanged for those of a peer: leave out torch.utils.checkpoint, and lists or closures that hold "
            "parameters (nn.ParameterList is fine)"
        )


@contextmanager
def _moved(module: nn.Module, change: float) -> Iterator[None]:
    """A module whose own trained weights are others for a while."""
    own = [(p, p.data) for p in module.parameters() if p.requires_grad]
    for parameter, value in own:
        parameter.data = value + change
    try:
        yield
    finally:
        for parameter, value in own:
            parameter.data = value


def _slopes(scores: Tensor) -> Tensor:
    """A gradient of some loss with respect to the scores, other for each sample and class.  [batch, ...]"""
    return torch.arange(scores.numel(), device=scores.device).cos().view(scores.shape).to(scores.dtype)


def _draws_own_noise(network: Tried, tensors: dict[str, Tensor], x: Tensor, key: Tensor, train: bool) -> bool:
    """Whether the network draws random numbers that do not come from the key, so that two calls give two results."""
    with torch.random.fork_rng(devices=[network.device] if network.device.type == "cuda" else []):
        before = torch.get_rng_state()
        one, two = (network._call(_copies(tensors), x.clone(), key, train)[0] for _ in range(2))
        drawn = not torch.equal(before, torch.get_rng_state())
    return drawn or (isinstance(one, Tensor) and not torch.equal(one.nan_to_num(), two.nan_to_num()))


def _mixes(network: Tried, tensors: dict[str, Tensor], x: Tensor, key: Tensor, train: bool) -> bool:
    """Whether a sample's scores depend on the other samples of its batch. Batch normalisation uses fixed statistics
    here, and dropout drops nothing. A network that draws random numbers of its own cannot be compared."""
    call = network._current[train]
    call.apart = True
    together, alone = (network.single(_copies(tensors), part.clone(), key, train) for part in (x, x[:1]))
    call.apart = False
    if alone.shape != together[:1].shape:
        raise ModelError(
            f"{network.name} returns shape {tuple(alone.shape)} for a batch of one sample, in place of "
            f"{tuple(together[:1].shape)}: squeeze() drops the batch, too, and squeeze(1) or flatten(1) do not"
        )
    return not network.draws[train] and not torch.allclose(together[:1], alone, rtol=1e-3, atol=1e-4, equal_nan=True)


def _copies(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


# --- as a stack -------------------------------------------------------------------------------------------------------


def alone(network: Tried, rows: Tensor, example: Tensor, key: Tensor) -> list[dict[str, Tensor]]:
    """What models give, each alone: in a training step, and their scores in evaluation.  rows [model, size]"""
    found = []
    for row in rows:
        trained = _trained_alone(network, row, example[:2], key)
        with torch.no_grad():
            tested = network.single(network.tensors(row.clone()), example[:2].clone(), key, False)
        refuse_nan(network, trained[_SCORES], tested)
        found.append(trained | {_TESTED: tested})
    return found


def why_not_stacked(
    network: Tried, rows: Tensor, example: Tensor, key: Tensor, expected: list[dict[str, Tensor]]
) -> str | None:
    """The reason why a network cannot run as a stack, or None. Models run side by side, in training and in evaluation.
    rows [model, size], `expected`: what each gives alone"""
    for name, layer in network._never_run.named_modules():
        if setting := _looks_at_batches(layer):
            return f"layer {name!r} (nn.{type(layer).__name__}) has {setting}, which looks at whole batches. {LOOP}"
    for place in network.stored.trained:
        if not torch.equal(expected[0][place.name].nan_to_num(), network.tensors(rows[0])[place.name].nan_to_num()):
            return (
                f"{network.name} changes its weights {place.name!r} in forward, which a stack calls for peers, too, "
                f"that have no samples left. {LOOP}"
            )
    inside = Inside()
    with noted() as said:
        try:
            with inside.following(*network._modules.values()):
                stacked = _trained_together(network, rows, example[:2], key, filled_up=True)
                with torch.no_grad():
                    tensors, keys = network.tensors(rows.clone()), key.expand(len(rows)).contiguous()
                    stacked[_TESTED] = network.logits(tensors, _for_each(example[:2], rows), keys, False)
        except ModelError:
            raise
        except Exception as error:  # the user's own code, and vmap's
            return f"{network.name} cannot run as a stack of models: {inside.where}{stumble(error)}. {LOOP}"
    wrong = _wrong(network, expected, stacked)
    if wrong is None:
        warn_of_slow_operations(network.name, [str(warning.message) for warning in said])
        return None
    stacked |= _trained_together(network, rows, example[:2], key, filled_up=False)
    if _wrong(network, expected, stacked) is not None:
        return f"{network.name} gives other results as a stack of models than alone ({wrong}). {LOOP}"
    return (
        f"{network.name} gives other results in a batch that is filled up with samples that do not count, as a stack "
        f"fills up short batches ({wrong}): a buffer takes in whole batches, or dropout works on tensors whose first "
        f"axis is not the batch (batch_first=True helps). {LOOP}"
    )


def _looks_at_batches(layer: nn.Module) -> str | None:
    """A setting by which a layer learns from samples that only fill up a batch, too; None: it has none."""
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return "max_norm" if layer.max_norm is not None else "scale_grad_by_freq" if layer.scale_grad_by_freq else None
    return "track_running_stats" if isinstance(layer, _InstanceNorm) and layer.track_running_stats else None


def _wrong(network: Tried, alone: list[dict[str, Tensor]], stacked: dict[str, Tensor]) -> str | None:
    """The name of what differs, or None. Products in these trials are exact, but for those of a GPU's kernels."""
    rounds = network.level == "fused"
    largest = max(float(found[n].norm()) for found in alone for n in found if n.startswith(_SLOPE))
    for name in alone[0]:
        expected = torch.stack([found[name] for found in alone])
        if name.startswith(_SLOPE):
            agrees = _agree(stacked[name], expected, 0.2 if rounds else 0.01, 1e-3 * largest)
        else:
            agrees = _agree(stacked[name], expected, _ROUNDING if rounds or name in (_SCORES, _TESTED) else 1e-3)
        if not agrees:
            return name
    return None


def _trained_alone(network: Tried, row: Tensor, x: Tensor, key: Tensor) -> dict[str, Tensor]:
    """What a training step of one model gives: scores, tensors after it by name, and gradients."""
    tensors, leaves = _leaves(network, row)
    scores = network.single(tensors, x.clone(), key, True)
    return _found(network, scores, tensors, leaves, _slopes(scores))


def _trained_together(network: Tried, rows: Tensor, x: Tensor, key: Tensor, filled_up: bool) -> dict[str, Tensor]:
    """The same of several models side by side. `filled_up`: with samples that do not count."""
    tensors, leaves = _leaves(network, rows)
    count, x = len(x), torch.cat([x, x, *[x[:1]] * 3]) if filled_up else x
    real = (torch.arange(len(x), device=x.device) < count).expand(len(rows), -1)
    keys = key.expand(len(rows)).contiguous()
    scores = network.logits(tensors, _for_each(x, rows), keys, True, real if network.has_batch_norm else None)
    slopes = torch.zeros_like(scores)
    slopes[:, :count] = _slopes(scores[0, :count])
    return _found(network, scores, tensors, leaves, slopes) | {_SCORES: scores.detach()[:, :count]}


def _leaves(network: Tried, rows: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Copies of all tensors by name, and those of them that training changes."""
    tensors = {name: tensor.clone() for name, tensor in network.tensors(rows).items()}
    leaves = {place.name: tensors[place.name].requires_grad_() for place in network.stored.trained}
    return tensors, leaves


def _found(
    network: Tried, scores: Tensor, tensors: dict[str, Tensor], leaves: dict[str, Tensor], slopes: Tensor
) -> dict[str, Tensor]:
    gradients = torch.autograd.grad(scores, list(leaves.values()), slopes, allow_unused=True, materialize_grads=True)
    after = {name: tensor.detach() for name, tensor in tensors.items()}
    return {_SCORES: scores.detach(), **after, **{_SLOPE + n: g for n, g in zip(leaves, gradients, strict=True)}}


def _for_each(x: Tensor, rows: Tensor) -> Tensor:
    return x.unsqueeze(0).repeat(len(rows), *(1 for _ in x.shape))


def _agree(scores: Tensor, expected: Tensor, rounding: float = _ROUNDING, least: float = 1e-6) -> bool:
    """Whether numbers are the expected ones up to rounding. Infinite scores, by which a network may rule out classes,
    must be the same."""
    finite = expected.isfinite()
    if not torch.equal(scores.masked_fill(finite, 0), expected.masked_fill(finite, 0)):
        return False
    off, size = ((t.masked_fill(~finite, 0)).norm() for t in (scores - expected, expected))
    return bool(off <= rounding * size + least)


def _about_types(example: Tensor, said: str) -> str:
    """What to do where types of numbers do not fit; empty where it is not about them."""
    if not example.dtype.is_floating_point:
        return (
            ". Inputs that are whole numbers are taken for tokens, which a network embeds: give features as real "
            "numbers, x.astype('float32'), pixels divided by 255; standardise = 'yes' makes real numbers of them, too"
        )
    if "dtype" not in said:
        return ""
    return ". Inputs and weights are float32 here, whatever the module was made with: let forward cast all else to it"
