# SPDX-License-Identifier: Apache-2.0
"""Where own data come from: `[data] source` names a table, a folder, an archive, a Hugging Face data set or a function.

    table.csv, table.tsv, table.parquet     a row for each sample, a column that names its peer
    folder/                                 images by peer and class
    archive.npz                             arrays x, y and peer
    hf:NAME                                 a data set of the Hugging Face hub, or a folder that it saved
    file.py:load, module:load               a function without arguments, or an object

What is read becomes a `Dataset`, which a partition shares out among peers, or `OwnPeers`, which have their data
already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pens import parts
from pens.data import folders, table_files, tables
from pens.data.own_peers import by_peer, is_table, parts_of
from pens.data.partition_files import hand_out
from pens.data.preparation import Preparation
from pens.data.reading import PART_NAMES, Parts, Raw, Reading, SourceRules, numbered
from pens.data.samples import Dataset, Samples
from pens.data.scenarios import Federation
from pens.data.sources import load_dataset
from pens.errors import DataError, DataNotFound, SettingsError, suggest
from pens.settings.tree import Settings


@dataclass(frozen=True)
class OwnPeers:
    """The data of own peers; what is missing of their parts is split off by a seed."""

    peers: Any
    """What `Federation.of` takes, or a federation that is complete."""
    reading: Reading
    clusters: Mapping[str, Any] | None = None

    def federation(self, seed: int) -> Federation:
        """The federation of one seed."""
        if isinstance(self.peers, Federation):
            return self.peers.with_classes(self.reading.num_classes)
        return Federation.gathered(self.peers, self.clusters, seed, self.reading)


def rules_of(settings: Settings, places: bool = False) -> SourceRules:
    """How these settings say that a source is read. `places`: with samples' numbers in place of their inputs."""
    data, numbers = settings.data, getattr(settings.model, "task", "classification") != "classification"
    target = data.target_column[0] if len(data.target_column) == 1 else data.target_column
    reading = Reading(
        data.peer_column,
        target,
        data.val_share,
        data.test_share,
        data.classes or None,
        data.num_classes,
        numbers,
        standardise=data.standardise == "yes" and not places,
        ignore=data.ignore_columns,
        places=places,
    )
    file = Path(data.partition_file) if data.partition_file else None
    return SourceRules(reading, data.image_size, file, data.standardise != "no" and not places)


def older_preparation(settings: Settings, own_parts: Sequence[str]) -> Preparation | None:
    """What settings alone say of how inputs were prepared, for runs that do not record it: that they were standardised,
    or None, nothing."""
    data = settings.data
    from_python = "data" in own_parts
    if data.standardise == "auto":
        standardised = data.is_own and not from_python and table_files.is_table_file(Path(data.source))
    else:
        standardised = data.standardise == "yes" and (data.is_own or from_python)
    return Preparation(lost=True) if standardised else None


def load_data(settings: Settings, data_dir: Path | None = None, places: bool = False) -> Dataset | OwnPeers:
    """The data that these settings name. `places`: with samples' numbers in place of their inputs."""
    source, rules = settings.data.source, rules_of(settings, places)
    if parts.is_place(source):
        return load_own(source, rules)
    if source in parts.DATASETS:
        return _of_dataset(load_dataset(source, data_dir), rules)
    if place := parts.offered("pens.datasets").get(source):
        return load_own(place, rules)
    known = ", ".join((*parts.DATASETS, *sorted(parts.offered("pens.datasets"))))
    raise SettingsError(
        f"unknown data set {source!r}{suggest(source, parts.DATASETS)}: choose from {known}, or name your own data: "
        "table.csv, a folder, or file.py:name"
    )


def load_own(source: str, rules: SourceRules) -> Dataset | OwnPeers:
    """What a source holds."""
    if source.startswith(parts.HUB):
        from pens.data.hub import read_hub

        return _own(read_hub(source.removeprefix(parts.HUB), rules), source, rules)
    if parts.is_reference(source):
        made = parts.load_object(source, "source")
        return _own(_called(made, source), source, rules)
    path = Path(source)
    if path.is_dir():
        if folders.has_no_peers(path):
            return _shared_out(folders.parts_of_folder(path, rules.image_size), source, rules)
        return _of_peers(dict(folders.peers_of_folder(path, rules.image_size)), rules)
    if path.suffix == ".npz":
        return _of_archive(path, rules)
    if table_files.is_table_file(path):
        return _own(table_files.read_table(path), source, rules)
    if not path.exists():
        raise DataNotFound(f"source = {source!r}: there is no such file or folder")
    known = ", ".join((*table_files.SUFFIXES, ".npz"))
    raise DataError(
        f"source = {source!r}: a file ends in {known}; other forms are read by a function of yours, file.py:load"
    )


def _called(made: Any, source: str) -> Any:
    if not callable(made) or isinstance(made, Dataset | Federation):
        return made
    try:
        return made()
    except Exception as error:  # the user's own code
        raise SettingsError(f"source = {source!r}: it fails: {type(error).__name__}: {error}") from error


def _own(made: Any, source: str, rules: SourceRules) -> Dataset | OwnPeers:
    """What a function returned, or a file holds."""
    if isinstance(made, Dataset):
        return _of_dataset(made, rules)
    if is_table(made):
        table = tables.as_arrow(made)
        rules = replace(rules, reading=replace(rules.reading, standardise=rules.standardises_tables))
        if rules.partition_file:
            return _handed_out(tables.columns_of_table(table, rules.reading, source), rules)
        if rules.reading.peer in table.column_names:
            clusters = tables.clusters_of_table(table, rules.reading)
            return OwnPeers(dict(tables.peers_of_table(table, rules.reading)), rules.reading, clusters)
        return _shared_out(dict(tables.peers_of_table(table, rules.reading, whose=source))[source], source, rules)
    if isinstance(made, Mapping) and "train" in made and set(made) <= {*PART_NAMES}:
        return _shared_out(parts_of(source, made, rules.reading), source, rules)
    if isinstance(made, Federation | Mapping | list):
        return _of_peers(made, rules)
    raise SettingsError(
        f"source = {source!r} gives a {type(made).__name__}: return a pens.Dataset, a pens.Federation, a mapping of "
        "peers to data, or a table"
    )


def _of_peers(made: Any, rules: SourceRules) -> OwnPeers:
    """Peers that have their data already, unless a file of indices hands them out anew."""
    if rules.partition_file:
        pieces = [raw for _, of in _given(made, rules.reading) for raw in of.values()]
        return _handed_out(
            Raw(np.concatenate([raw.x for raw in pieces]), np.concatenate([raw.y for raw in pieces])), rules
        )
    if rules.reading.places:
        first, given = 0, dict[str, Parts]()
        for name, of in _given(made, rules.reading):
            given[name] = {}
            for part, raw in of.items():
                given[name][part] = numbered(raw, first)
                first += len(raw.y)
        made = given
    return OwnPeers(made, rules.reading)


def _given(made: Any, reading: Reading) -> Iterator[tuple[str, Parts]]:
    """The peers of a mapping or of a federation, with their parts."""
    if not isinstance(made, Federation):
        yield from by_peer(made, reading)
        return
    for number, peer in enumerate(made.peers):
        found = {"train": peer.train, "val": peer.val, "test": made.tests[made.tested_on[number]]}
        yield made.name_of(number), {part: Raw(of.x, of.y) for part, of in found.items()}


def _of_dataset(dataset: Dataset, rules: SourceRules) -> Dataset | OwnPeers:
    """A data set, which a partition shares out, unless a file of indices does: these count training and test data."""
    train, test = Raw(dataset.train.x, dataset.train.y), Raw(dataset.test.x, dataset.test.y)
    if rules.partition_file:
        classes = rules.reading.num_classes or (None if rules.reading.numbers else dataset.num_classes)
        whole = Raw(np.concatenate([train.x, test.x]), np.concatenate([train.y, test.y]))
        return _handed_out(whole, replace(rules, reading=replace(rules.reading, num_classes=classes)))
    if not rules.reading.places:
        return dataset
    return Dataset(dataset.name, *(Samples(raw.x, raw.y) for raw in (numbered(train), numbered(test, len(train.y)))))


def _handed_out(whole: Raw, rules: SourceRules) -> OwnPeers:
    """Samples that a file of indices hands out."""
    assert rules.partition_file
    given, clusters = hand_out(rules.partition_file, numbered(whole) if rules.reading.places else whole)
    return OwnPeers(given, rules.reading, clusters)


def _shared_out(found: Parts, source: str, rules: SourceRules) -> Dataset | OwnPeers:
    """Samples of nobody: a partition shares them out. Without a test part, a part is split off."""
    if rules.partition_file:
        return _of_peers({source: found}, rules)
    whole = Federation.gathered({source: dict(found)}, None, 0, rules.reading)
    held = whole.peers[0]
    train = Samples(np.concatenate([held.train.x, held.val.x]), np.concatenate([held.train.y, held.val.y]))
    prepared, names = whole.preparation, whole.class_names
    return Dataset(Path(source).stem, train, whole.tests[0], preparation=prepared, class_names=names)


def _of_archive(path: Path, rules: SourceRules) -> Dataset | OwnPeers:
    raw, peers = folders.read_archive(path, rules.reading)
    raw = numbered(raw) if rules.reading.places else raw
    if peers is None or rules.partition_file:
        return _shared_out({"train": raw}, str(path), rules)
    if len(peers) != len(raw.x):
        raise DataError(f"{path}: {len(raw.x)} inputs, but {len(peers)} peers: each sample needs one")
    named = peers.astype(str)
    found = {str(name): (raw.x[named == name], raw.y[named == name]) for name in dict.fromkeys(named.tolist())}
    return OwnPeers(found, rules.reading)


# --- one real peer ----------------------------------------------------------------------------------------------------


def load_one(name: str, source: str, rules: SourceRules, seed: int) -> Federation:
    """The federation of one real peer alone, from a file or folder that holds its own samples."""
    path = Path(source)
    if path.is_dir():
        given: Any = folders.parts_of_folder(path, rules.image_size)
    elif path.suffix == ".npz":
        given = {"train": folders.read_archive(path, rules.reading)[0]}
    else:
        rules = replace(rules, reading=replace(rules.reading, standardise=rules.standardises_tables))
        given = dict(tables.peers_of_table(table_files.read_table(path), rules.reading, whose=name))[name]
    return Federation.gathered({name: dict(given)}, None, seed, rules.reading)
