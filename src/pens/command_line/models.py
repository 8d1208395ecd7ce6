# SPDX-License-Identifier: Apache-2.0
"""The commands that use one peer's tested model: `pens predict` and `pens export`."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pens.command_line.printing import new_console

if TYPE_CHECKING:
    from pens.data.samples import Array
    from pens.measuring.results import RunResult

_SUFFIXES = {"state_dict": ".safetensors", "torchscript": ".pt", "onnx": ".onnx"}


_Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A run directory, as `pens run` names it at its end.")]
_Peer = Annotated[str, typer.Option(help="Whose model: a number from 0, or the peer's name.")]
_Method = Annotated[str | None, typer.Option(help="Of which method's run.", show_default="the only one there is")]
_Seed = Annotated[int | None, typer.Option(help="With which seed.", show_default="the only one there is")]
_Model = Annotated[
    str | None, typer.Option(metavar="FILE:NAME", help="The nn.Module class of a run with a network of your own.")
]


def predict_command(
    folder: _Folder,
    peer: _Peer,
    data: Annotated[
        Path,
        typer.Option(metavar="FILE", help="New samples: a table (.csv, .tsv, .parquet) with the features' columns."),
    ],
    method: _Method = None,
    seed: _Seed = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.csv", help="The file to write.", show_default="print")
    ] = None,
    model: _Model = None,
) -> None:
    """Predict new rows of a table by the tested model of one peer."""
    from pens.data.table_files import read_table
    from pens.errors import ResultError
    from pens.parts import load_function

    run, number = _tested(folder, peer, method, seed)
    if not (run.preparation and run.preparation.columns):
        raise ResultError(
            f"the record of {folder} does not name the features: its data came from no table, or it is of an older "
            "version of pens. Use run.predict in Python"
        )
    own = load_function(model, "--model") if model else None
    text = _as_csv(run.predict(number, read_table(data), model=own))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ResultError(f"{out}: cannot be written: {error.strerror or error}") from None
    words = f"{run.peer_label(number)} of {run.method} seed {run.seed}: {out}"
    new_console().print(words, style="dim", markup=False, soft_wrap=True)


def _as_csv(found: Array) -> str:
    """Predictions as a table: the number of each row, from 1, and its class or numbers.  [row] or [row, number]"""
    several = found.ndim > 1
    names = [f"prediction_{place + 1}" for place in range(found.shape[1])] if several else ["prediction"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["row", *names])
    for row, values in enumerate(found if several else found[:, None]):
        writer.writerow([row + 1, *map(str, values)])
    return text.getvalue()


def export_command(
    folder: _Folder,
    peer: _Peer,
    method: _Method = None,
    seed: _Seed = None,
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
    standardised: Annotated[
        bool, typer.Option("--standardised", help="A program shall take inputs that are standardised already.")
    ] = False,
    model: _Model = None,
) -> None:
    """Write the tested model of one peer to a file for other programs."""
    from pens.inference.exporting import FORMATS
    from pens.parts import load_function

    run, number = _tested(folder, peer, method, seed)
    label = run.peer_label(number).replace(" ", "")
    suffix = _SUFFIXES[format_] if format_ in FORMATS else ""
    place = out or Path(f"{run.method}-seed{run.seed}-{label}{suffix}")
    own = load_function(model, "--model") if model else None
    run.export(number, place, format=format_, standardised=standardised, model=own)
    words = f"{run.peer_label(number)} of {run.method} seed {run.seed}: {place}"
    new_console().print(words, style="dim", markup=False, soft_wrap=True)


def _tested(folder: Path, peer: str, method: str | None, seed: int | None) -> tuple[RunResult, int]:
    """The run of a folder that is meant, and the number of the peer."""
    from pens.experiment.loading import load

    run = load(folder).run_of(method, seed)
    return run, run.peer_number(int(peer) if peer.isdecimal() and peer not in run.peer_names else peer)
