# SPDX-License-Identifier: Apache-2.0
"""The functions `pens.load` and `pens.load_all`: results of earlier runs, from their folders."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pens.data.own_sources import older_preparation
from pens.errors import RunDirError
from pens.inference.network_form import NetworkForm
from pens.measuring.results import ExperimentResult
from pens.storage.runlog import ExperimentDir

_MOST_NAMES = 6


def load(folder: Path | str) -> ExperimentResult:
    """The result of a run directory, as far as its runs are complete: of pens.run, `pens run`, `pens up` or
    `pens collect`. Methods, data and networks of one's own need not be there. Models stay on disk until they are asked
    for.

    folder:  a run directory, or a folder with one run directory in it
    """
    found = _run_directories(Path(folder))
    if len(found) > 1:
        some = ", ".join(each.name for each in found[:_MOST_NAMES]) + (" …" if len(found) > _MOST_NAMES else "")
        raise RunDirError(
            f"{folder} holds {len(found)} run directories ({some}): load one of them, or all with "
            f"pens.load_all({str(folder)!r})"
        )
    return _load(found[0])


def load_all(folder: Path | str) -> dict[str, ExperimentResult]:
    """The results of all run directories in a folder, such as that of `pens reproduce`, by their folders' names."""
    return {each.resolve().name: _load(each) for each in _run_directories(Path(folder))}


def _load(folder: Path) -> ExperimentResult:
    directory = ExperimentDir(folder)
    record = directory.read()
    older = NetworkForm.of_older(record.settings, record.own_parts)
    prepared = older_preparation(record.settings, record.own_parts)
    runs = [
        replace(run, network=run.network or older, preparation=run.preparation or prepared)
        for run in directory.results()
    ]
    return record.result(runs, folder)


def _run_directories(folder: Path) -> list[Path]:
    """The folder itself, or the run directories in it."""
    if ExperimentDir(folder).exists():
        return [folder]
    if not folder.exists():
        raise RunDirError(f"there is no folder {folder}")
    if not folder.is_dir():
        raise RunDirError(f"{folder} is a file: give the folder of a run")
    if found := sorted(each for each in folder.iterdir() if ExperimentDir(each).exists()):
        return found
    if ExperimentDir(folder.resolve().parent).exists():
        parent = str(folder.parent)
        raise RunDirError(f"{folder} is one run of the run directory {parent}: load that, pens.load({parent!r})")
    if (folder / "peer.json").is_file():
        raise RunDirError(
            f"{folder} is the folder of one real peer: make a run directory of the folders of all peers with "
            "pens collect PEER_FOLDER… --out DIR, and load that"
        )
    raise RunDirError(f"{folder} holds no run: there is no experiment.json in it, nor in a folder in it")
