# SPDX-License-Identifier: Apache-2.0
"""What can be done with the tested models of a run: take them out, evaluate them on new samples, export them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pens.data.samples import Array
from pens.errors import ResultError
from pens.inference.exporting import check_target, write_program, write_state_dict
from pens.inference.network_form import Model, NetworkForm, as_inputs, module_of
from pens.inference.peer_models import PeerModels
from pens.inference.predicting import BATCH, outputs, said


class HasTestedModels:
    """A run with the tested models of its peers. A peer is given by its number, or a real peer by its name, too.

    `model`, where a function takes it, makes the user's own network: the class or function that the run was given. It
    need not be given for a built-in network, nor in the process that computed the run.
    """

    method: str
    seed: int
    models: PeerModels
    network: NetworkForm | None
    peer_names: tuple[str, ...]

    @property
    def num_peers(self) -> int:
        raise NotImplementedError

    def peer_label(self, peer: int) -> str:
        """A peer's name where it has one, else its number."""
        return self.peer_names[peer] if self.peer_names else f"peer {peer}"

    def peer_number(self, peer: int | str) -> int:
        """A peer's number, from its number or its name."""
        if isinstance(peer, str):
            if peer in self.peer_names:
                return self.peer_names.index(peer)
        elif 0 <= peer < self.num_peers:
            return int(peer)
        names = f", also by name: {', '.join(self.peer_names[:8])}" if self.peer_names else ""
        raise ResultError(f"there is no peer {peer}: this run has peers 0 to {self.num_peers - 1}{names}")

    def state_dict(self, peer: int | str) -> dict[str, Tensor]:
        """One peer's tested model, to load into a module. Where one learner stands for all, each peer has its model."""
        return self.models[self.peer_number(peer)]

    def module(self, peer: int | str, model: Model | None = None) -> nn.Module:
        """One peer's tested model as a network on the CPU, ready to evaluate."""
        whose = f"{self.peer_label(self.peer_number(peer))} of {self.method} seed {self.seed}"
        return module_of(self.network, self.state_dict(peer), model, whose)

    def scores(self, peer: int | str, x: Any, *, model: Model | None = None, batch_size: int = BATCH) -> Array:
        """What a peer's tested model returns for new samples: arrays or tensors, prepared as the training data were.
        x [sample, ...] → [sample, output]"""
        checked = self.network.inputs(x) if self.network else as_inputs(x)
        return outputs(self.module(peer, model), checked, batch_size)

    def predict(self, peer: int | str, x: Any, *, model: Model | None = None, batch_size: int = BATCH) -> Array:
        """What a peer's tested model says of new samples, in the form of targets: classes, by name where labels were
        texts; in a regression the numbers themselves.  x [sample, ...] → [sample]"""
        return said(self.scores(peer, x, model=model, batch_size=batch_size), self.network)

    def export(
        self,
        peer: int | str,
        path: Path | str,
        *,
        format: str = "state_dict",
        model: Model | None = None,
        example: Any = None,
    ) -> Path:
        """Write a peer's tested model to a file, and return its path.

        format:   state_dict (.safetensors, or .pt for torch.load), torchscript (.pt) or onnx (.onnx)
        example:  at least three inputs, for torchscript and onnx where the record does not tell their shape
        """
        place = Path(path)
        check_target(place, format)
        if format == "state_dict":
            write_state_dict(place, self.state_dict(peer))
        else:
            write_program(place, self.module(peer, model), self._example(example), format)
        return place

    def _example(self, given: Any) -> Tensor:
        if given is not None:
            inputs = self.network.inputs(given) if self.network else as_inputs(given)
            if len(inputs) < 3:
                raise ResultError(f"example has {len(inputs)} inputs: give at least 3")
            return torch.from_numpy(inputs)
        if self.network is None:
            raise ResultError(
                "the shape of this run's inputs is not on record: pass example=, at least three inputs, or take the "
                "format state_dict"
            )
        return self.network.example(3)
