# SPDX-License-Identifier: Apache-2.0
"""The command `pens export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pens.command_line.printing import new_console

_SUFFIXES = {"state_dict": ".safetensors", "torchscript": ".pt", "onnx": ".onnx"}


def export_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, as `pens run` names it at its end.")],
    peer: Annotated[str, typer.Option(help="Whose model: a number from 0, or a real peer's name.")],
    method: Annotated[
        str | None, typer.Option(help="Of which method's run.", show_default="the only one there is")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With which seed.", show_default="the only one there is")] = None,
    format_: Annotated[
        str,
        typer.Option(
            "--format",
            help="state_dict: its tensors by name (.safetensors, or .pt for torch.load). torchscript (.pt), onnx "
            "(.onnx): a program that needs no pens.",
        ),
    ] = "state_dict",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The file to write.", show_default="METHOD-seedN-peerN.SUFFIX")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="FILE:NAME", help="The nn.Module class of a run with a network of your own.")
    ] = None,
) -> None:
    """Write the tested model of one peer to a file for other programs."""
    from pens.experiment.loading import load
    from pens.inference.exporting import FORMATS
    from pens.parts import load_function

    run = load(folder).run_of(method, seed)
    number = run.peer_number(int(peer) if peer.isdecimal() and peer not in run.peer_names else peer)
    label = run.peer_label(number).replace(" ", "")
    suffix = _SUFFIXES[format_] if format_ in FORMATS else ""
    place = out or Path(f"{run.method}-seed{run.seed}-{label}{suffix}")
    run.export(number, place, format=format_, model=load_function(model, "--model") if model else None)
    words = f"{run.peer_label(number)} of {run.method} seed {run.seed}: {place}"
    new_console().print(words, style="dim", markup=False, soft_wrap=True)
