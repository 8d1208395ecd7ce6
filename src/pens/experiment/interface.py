# SPDX-License-Identifier: Apache-2.0
"""The functions `pens.run` and `pens.resume`: they check and record what a user asks for, and carry it out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pens.data.samples import Dataset
from pens.data.scenarios import Federation
from pens.errors import RunDirError
from pens.experiment.execution import Experiment
from pens.experiment.holdings import Holdings
from pens.experiment.observer import Observer
from pens.experiment.presets import choices_in, default_methods, keys_said, resolve_settings, starting_point
from pens.experiment.progress import ShowProgress, showing
from pens.measuring.results import ExperimentResult
from pens.methods.method import Method
from pens.methods.names import MethodLike, lost, parse_methods, prints_of, references_of, sections_without_effect
from pens.parts import located_data
from pens.settings.named_parts import lost_parts
from pens.settings.seeds import parse_seeds
from pens.settings.tree import Settings
from pens.storage.runlog import RULES, ExperimentDir, ExperimentRecord


def run(
    settings: Settings | str | Path | Mapping[str, Any] | None = None,
    *,
    methods: str | Method | type[Method] | Iterable[MethodLike] | None = None,
    seeds: int | Sequence[int] | None = None,
    overrides: Mapping[str, Any] | None = None,
    model: Callable[..., nn.Module] | None = None,
    data: Dataset | Federation | Mapping[str, Any] | str | Path | None = None,
    data_dir: Path | str | None = None,
    device: str = "auto",
    out: Path | str | None = None,
    observer: Observer | None = None,
    progress: ShowProgress = "auto",
) -> ExperimentResult:
    """Run each method once with each seed, and return the results.

    settings:   a preset's name, a .toml file, a mapping of settings, or Settings. None: the preset digits, or for own
                data the preset own
    methods:    names of methods, or your own: file.py:Name, module:Name, a class or an instance of pens.Method. None:
                those that the file names, or else local, random, pens, and, where the data have clusters, oracle
    seeds:      how many seeds (4: those from 0 to 3), or which ones. None: those that the file names, or else one
    overrides:  settings to change, {"peers": 8, "n_sampled": 3}
    model:      makes the network, in place of the setting `net`: an nn.Module class, or a function, which is given
                `shape` and `num_classes` where it needs arguments of these names
    data:       a Dataset that the partition shares out among the peers, a whole Federation, what Federation.of takes,
                or the path of a table, an archive or a folder: the setting `source`
    data_dir:   a folder in which data sets are searched first
    device:     auto (a GPU if there is one), cpu, cuda or cuda:N
    out:        a new or empty folder for the run directory; None keeps results in memory
    observer:   gets progress callbacks and warnings; without one, warnings are Python's, of the category PensWarning
    progress:   show progress: True, False, or "auto": in a terminal or a notebook, unless there is an observer
    """
    chosen = choices_in(settings)
    methods, seeds = chosen.methods if methods is None else methods, chosen.seeds if seeds is None else seeds
    names = () if methods is None else parse_methods(methods)  # before the settings, which may have their sections
    chosen_seeds, folder = parse_seeds(1 if seeds is None else seeds), Path(data_dir) if data_dir else None
    if isinstance(data, str | Path):
        overrides, data = {**(overrides or {}), "data.source": located_data(str(data))}, None
    base = starting_point(settings, overrides, has_own_data=data is not None)
    wanted = base.replace(overrides or {}) if settings is None else resolve_settings(settings, overrides)
    holdings = Holdings(wanted, data, folder)
    fitted = holdings.fitted(wanted, keys_said(settings, overrides), chosen_seeds[0])
    record = ExperimentRecord(
        settings=fitted,
        methods=names or default_methods(holdings.participants(fitted, chosen_seeds).smallest_cluster),
        seeds=chosen_seeds,
        own_parts=tuple(name for name, part in (("model", model), ("data", data)) if part is not None),
        data_dir=str(Path(data_dir).resolve()) if data_dir else None,
        references=references_of(names),
    )
    record = replace(record, part_files=prints_of(record.settings, record.methods))
    experiment = Experiment(record, holdings, device=device, model=model)
    experiment.prepare()
    directory = ExperimentDir(Path(out)) if out else None
    if directory:
        directory.create(record)
    with showing(progress, observer) as watching:
        for doubt in holdings.doubts(record.settings, chosen_seeds[0]):
            watching.noted(doubt)
        for title in sections_without_effect(record.settings, record.methods):
            watching.noted(f"what is set in [{title}] has no effect: no part in use has that section")
        return experiment.run(directory, watching)


def resume(
    folder: Path | str,
    *,
    methods: Iterable[MethodLike] = (),
    model: Callable[..., nn.Module] | None = None,
    data: Dataset | Federation | None = None,
    data_dir: Path | str | None = None,
    device: str = "auto",
    observer: Observer | None = None,
    progress: ShowProgress = "auto",
) -> ExperimentResult:
    """Continue an experiment that was stopped. The result is the same as without the stop.

    methods:  your own methods that exist in Python only, so that the record does not say where they are
    observer, progress:  as for `run`
    """
    given = parse_methods(own) if (own := list(methods)) else ()
    directory = ExperimentDir(Path(folder))
    record = directory.read()
    if record.real_peers:
        raise RunDirError(
            f"{folder} was composed from real peers' records, so there is nothing to resume: restart the peers with "
            "pens peer, or with pens up --resume"
        )
    if record.rules != RULES:
        raise RunDirError(
            f"{folder} was begun by a version of pens with other rules ({record.rules}, now {RULES}): pens show and "
            "pens report still read it, but to complete it, run the experiment anew in another folder"
        )
    for name, part in (("model", model), ("data", data)):
        if name not in record.own_parts and part is not None:
            raise RunDirError(f"{folder} was not run with a {name} of your own: leave out {name}= to resume")
        if name in record.own_parts and part is None:
            raise RunDirError(
                f"{folder} was run with your own {name}: resume it from Python, pens.resume({str(folder)!r}, {name}=…)"
            )
    gone = lost_parts(record.settings)
    gone |= {
        f"method {name!r}": why
        for name, why in lost((name for name in record.methods if name not in given), record.references).items()
    }
    if gone:
        missing = "; and with ".join(f"the {what}, which is not there any more: {why}" for what, why in gone.items())
        by_python = f", or pass methods from Python: pens.resume({str(folder)!r}, methods=[…])"
        raise RunDirError(
            f"{folder} was run with {missing}. Bring {'it' if len(gone) == 1 else 'them'} back"
            f"{by_python if any(what.startswith('method') for what in gone) else ''}"
        )
    folder_of_data = data_dir or record.data_dir
    holdings = Holdings(record.settings, data, Path(folder_of_data) if folder_of_data else None)
    experiment = Experiment(record, holdings, device=device, model=model)
    experiment.prepare()
    with showing(progress, observer) as watching:
        for words in changed_parts(record, directory.folder):
            watching.noted(words)
        return experiment.run(directory, watching)


def changed_parts(record: ExperimentRecord, folder: Path | str) -> list[str]:
    """Warnings of parts of others whose file is another one than when the record of this folder was written."""
    now = prints_of(record.settings, record.methods)
    changed = [what for what, mark in record.part_files.items() if now.get(what, mark) != mark]
    return [
        f"the file of the {what} has changed since the runs in {folder} began: what is computed from now on "
        "follows the new file, so that these runs belong to neither file. Bring the old file back, or run anew"
        for what in changed
    ]
