# SPDX-License-Identifier: Apache-2.0
"""What can be done with the tested models of a run: take them out, evaluate them on new samples, export them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pens.data.own_peers import is_table
from pens.data.preparation import Preparation, Standard
from pens.data.samples import Array
from pens.data.tables import features_of_table
from pens.errors import ResultError
from pens.inference.exporting import check_target, write_program, write_state_dict
from pens.inference.network_form import Model, NetworkForm, as_inputs, module_of
from pens.inference.peer_models import PeerModels
from pens.inference.predicting import BATCH, outputs, said
from pens.inference.standardising import Standardising


class HasTestedModels:
    """A run with the tested models of its peers. A peer is given by its number, or a real peer by its name, too.

    `model`, where a function takes it, makes the user's own network: the class or function that the run was given. It
    need not be given for a built-in network, nor in the process that computed the run.

    Where a peer's data were standardised, its inputs here are as they were before: they are standardised by the peer's
    own numbers. `standardised` says that they are so already.
    """

    method: str
    seed: int
    models: PeerModels
    network: NetworkForm | None
    preparation: Preparation | None
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

    def module(self, peer: int | str, model: Model | None = None, *, standardised: bool = False) -> nn.Module:
        """One peer's tested model as a network on the CPU, ready to evaluate. Where the peer's data were standardised,
        the network stands behind a first step that does so; with `standardised` it stands alone."""
        whose = f"{self.peer_label(self.peer_number(peer))} of {self.method} seed {self.seed}"
        network = module_of(self.network, self.state_dict(peer), model, whose)
        standard = self._standard(peer, standardised)
        return Standardising(network, standard) if standard else network

    def scores(
        self,
        peer: int | str,
        x: Any,
        *,
        standardised: bool = False,
        model: Model | None = None,
        batch_size: int = BATCH,
    ) -> Array:
        """What a peer's tested model returns for new samples: arrays, tensors, or a table, of which it takes the
        columns that were features in training.  x [sample, ...] → [sample, output]"""
        checked = self._inputs(x, as_real=self._standard(peer, standardised) is not None)
        return outputs(self.module(peer, model, standardised=standardised), checked, batch_size)

    def predict(
        self,
        peer: int | str,
        x: Any,
        *,
        standardised: bool = False,
        model: Model | None = None,
        batch_size: int = BATCH,
    ) -> Array:
        """What a peer's tested model says of new samples, in the form of targets: classes, by name where labels were
        texts; in a regression the numbers themselves.  x [sample, ...] → [sample]"""
        found = self.scores(peer, x, standardised=standardised, model=model, batch_size=batch_size)
        return said(found, self.network)

    def export(
        self,
        peer: int | str,
        path: Path | str,
        *,
        format: str = "state_dict",
        standardised: bool = False,
        model: Model | None = None,
        example: Any = None,
    ) -> Path:
        """Write a peer's tested model to a file, and return its path. The tensors of a state_dict are those of the
        network alone; a program (torchscript, onnx) standardises its inputs first, unless they are `standardised`.

        format:   state_dict (.safetensors, or .pt for torch.load), torchscript (.pt) or onnx (.onnx)
        example:  at least three inputs, for torchscript and onnx where the record does not tell their shape
        """
        place = Path(path)
        check_target(place, format)
        if format == "state_dict":
            write_state_dict(place, self.state_dict(peer))
        else:
            standard = self._standard(peer, standardised)
            module = self.module(peer, model, standardised=standardised)
            write_program(place, module, self._example(example, standard), format)
        return place

    def _standard(self, peer: int | str, standardised: bool) -> Standard | None:
        """By what a peer's inputs have to be standardised; None: they are taken as they are."""
        number = self.peer_number(peer)
        if standardised or self.preparation is None:
            return None
        standard = self.preparation.standard_of(number)
        if standard is None and self.preparation.lost:
            raise ResultError(
                f"the data of {self.peer_label(number)} were standardised, but the record does not say by which "
                "numbers: it is of an older version of pens, or the peer keeps them to itself. Standardise the inputs "
                "by the means and deviations of the peer's own training data and pass standardised=True, or compute "
                "the run anew"
            )
        return standard

    def _inputs(self, x: Any, as_real: bool) -> Array:
        """Inputs of new samples as a network takes them. `as_real`: whole numbers become real ones."""
        columns = self.preparation.columns if self.preparation else ()
        if columns and is_table(x):
            x = features_of_table(x, columns)
        return self.network.inputs(x, as_real) if self.network else as_inputs(x, as_real)

    def _example(self, given: Any, standard: Standard | None) -> Tensor:
        if given is not None:
            inputs = self._inputs(given, as_real=standard is not None)
            if len(inputs) < 3:
                raise ResultError(f"example has {len(inputs)} inputs: give at least 3")
            return torch.from_numpy(inputs)
        if self.network is None:
            raise ResultError(
                "the shape of this run's inputs is not on record: pass example=, at least three inputs, or take the "
                "format state_dict"
            )
        usual = self.network.example(3)
        if standard is None:
            return usual
        return torch.from_numpy((usual.numpy() * standard.scale + standard.shift).astype(np.float32))
