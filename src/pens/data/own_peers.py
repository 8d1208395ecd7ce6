# SPDX-License-Identifier: Apache-2.0
"""Federations of a user's own peers: `Federation.of` takes what people have, and splits off what is missing.

A peer's data may be a pair of arrays (x, y), `Samples`, `PeerData`, a torch data set, a table of columns (a DataFrame
or a pyarrow Table), a tuple (train, validation) or (train, validation, test) of these, or a mapping of these parts.
Inputs are numbers. Targets are class numbers from 0, texts or other values that become classes in sorted order, over
all peers together; or, for tasks that are no classification, numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pens.data import tables
from pens.data.reading import PART_NAMES, Parts, Raw, Reading
from pens.data.samples import Array, Samples
from pens.data.splits import split
from pens.errors import DataError, suggest


class Gathered(NamedTuple):
    """The data of own peers, complete. [peer] each"""

    names: list[str]
    held: list[tuple[Samples, Samples]]
    """Training and validation data."""
    tests: list[Samples]
    clusters: list[str | None]
    """None where it is not known."""
    class_names: tuple[str, ...]


def gather(
    peers: Mapping[str, Any] | Any,
    clusters: Mapping[str, Any] | Sequence[Any] | None,
    seed: int,
    reading: Reading,
) -> Gathered:
    """The data of these peers, in the order in which they are given."""
    given = dict(_by_peer(peers, reading))
    if not given:
        raise DataError("a federation has 0 peers: it needs at least one peer")
    numbering = _Numbering.of(given, reading)
    held, tests = [], []
    for name, parts in given.items():
        whole = {part: numbering.samples(name, part, raw) for part, raw in parts.items()}
        train, val, test = _complete(name, whole, reading, seed)
        held.append((train, val))
        tests.append(test)
    return Gathered(list(given), held, tests, _clusters_of(list(given), clusters), numbering.names)


def _complete(name: str, parts: dict[str, Samples], reading: Reading, seed: int) -> list[Samples]:
    """A peer's training, validation and test data; what is missing is split off its training data."""
    missing = {"val": reading.val_share, "test": reading.test_share}
    shares = {part: share for part, share in missing.items() if part not in parts}
    train, *others = split(name, parts["train"], list(shares.values()), seed)
    found = {**parts, **dict(zip(shares, others, strict=True))}
    empty = [part for part in ("val", "test") if not len(found[part])]
    if empty:
        raise DataError(
            f"peer {name}: its {'validation' if empty[0] == 'val' else 'test'} part is empty: leave that part out, and "
            "it is split off the training data"
        )
    val, test = found["val"], found["test"]
    return _standardised(train, val, test) if reading.standardise else [train, val, test]


def _standardised(train: Samples, *others: Samples) -> list[Samples]:
    """Parts with inputs of mean 0 and deviation 1 by the training data: each feature of a table, or all numbers of
    other inputs together."""
    axes = 0 if train.x.ndim == 2 else None
    mean, deviation = train.x.mean(axes, dtype=np.float64), train.x.std(axes, dtype=np.float64)
    scale = np.where(deviation > 0, deviation, 1)
    return [Samples(((part.x - mean) / scale).astype(np.float32), part.y) for part in (train, *others)]


def _clusters_of(names: Sequence[str], clusters: Mapping[str, Any] | Sequence[Any] | None) -> list[str | None]:
    """The name of each peer's cluster; None where it is not known."""
    if clusters is None:
        return [None] * len(names)
    if isinstance(clusters, Mapping):
        if unknown := [peer for peer in map(str, clusters) if peer not in names]:
            raise DataError(f"clusters name the peer {unknown[0]!r}, which has no data{suggest(unknown[0], names)}")
        clusters = [{str(peer): cluster for peer, cluster in clusters.items()}.get(name) for name in names]
    if len(clusters) != len(names):
        raise DataError(
            f"{len(names)} peers, but clusters for {len(clusters)}: give one for each peer, None where it is not known"
        )
    return [None if cluster is None else str(cluster) for cluster in clusters]


# --- what is given ----------------------------------------------------------------------------------------------------


def _by_peer(peers: Any, reading: Reading) -> Iterator[tuple[str, Parts]]:
    if isinstance(peers, Mapping):
        yield from ((str(name), parts_of(str(name), value, reading)) for name, value in peers.items())
    elif is_table(peers):
        yield from tables.peers_of_table(peers, reading)
    elif isinstance(peers, Sequence) and not isinstance(peers, str):
        yield from ((f"peer-{i}", parts_of(f"peer-{i}", value, reading)) for i, value in enumerate(peers))
    else:
        raise DataError(
            f"peers are given as a {type(peers).__name__}: pass a mapping of names to data, a list of data, or a table "
            "with a column that names the peer"
        )


def parts_of(name: str, value: Any, reading: Reading) -> Parts:
    """What is given of one peer."""
    if isinstance(getattr(value, "train", None), Samples):  # pens.PeerData
        return {"train": _raw(value.train), "val": _raw(value.val)}
    if isinstance(value, Mapping) and "train" in value:
        if unknown := [part for part in value if part not in PART_NAMES]:
            raise DataError(f"peer {name} has a part {unknown[0]!r}: parts are {', '.join(PART_NAMES)}")
        return {part: one_part(name, value[part], reading) for part in PART_NAMES if value.get(part) is not None}
    if isinstance(value, tuple | list) and _are_parts(value):
        return {part: one_part(name, of, reading) for part, of in zip(PART_NAMES, value, strict=False)}
    return {"train": one_part(name, value, reading)}


def _are_parts(value: Sequence[Any]) -> bool:
    """Whether a tuple holds parts of a peer's data, and is no pair of inputs and targets."""
    if len(value) not in (2, 3):
        return False
    return len(value) == 3 or all(_is_whole(part) for part in value)


def _is_whole(part: Any) -> bool:
    """Whether something has inputs and targets."""
    pair = isinstance(part, tuple) and len(part) == 2 and all(np.ndim(one) for one in part)
    return pair or isinstance(part, Samples) or is_table(part) or _is_data_set(part)


def one_part(name: str, value: Any, reading: Reading) -> Raw:
    """Inputs and targets, from one of the forms in which they are given."""
    if isinstance(value, Samples):
        return _raw(value)
    if is_table(value):
        return tables.columns_of_table(value, reading, name)
    if isinstance(value, Mapping) and {"x", "y"} <= set(value):
        value = (value["x"], value["y"])
    if isinstance(value, tuple | list) and len(value) == 2:
        return _pair(name, *value)
    if _is_data_set(value):
        return _from_data_set(name, value)
    raise DataError(
        f"peer {name}: its data are a {type(value).__name__}: pass (x, y), pens.Samples, a torch data set, a table, or "
        "a tuple (train, validation, test) of these"
    )


def _raw(samples: Samples) -> Raw:
    return Raw(samples.x, samples.y)


def _pair(name: str, x: Any, y: Any) -> Raw:
    inputs, targets = _array(name, "inputs", x), np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if len(inputs) != len(targets):
        raise DataError(
            f"peer {name} has {len(inputs)} inputs but {len(targets)} targets: each sample needs one target"
        )
    return Raw(inputs, targets)


def _array(name: str, what: str, values: Any) -> Array:
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(f"peer {name}: its {what} are no array: {error}") from None
    if array.ndim < 1 or array.dtype.kind not in "fiub":
        first = f", the first is {str(array.flat[0])[:40]!r}" if array.size else ""
        raise DataError(
            f"peer {name}: its {what} have shape {array.shape} and type {array.dtype}{first}: give numbers, as an "
            "array with one entry for each sample"
        )
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, and are refused as such
        return array.astype(np.float32, copy=False)


def is_table(value: Any) -> bool:
    """Whether something is a table of columns: a DataFrame or a pyarrow Table."""
    return type(value).__module__.split(".")[0] in ("pandas", "pyarrow", "polars") and hasattr(value, "columns")


def _is_data_set(value: Any) -> bool:
    if isinstance(value, str | tuple | list | Mapping | np.ndarray) or hasattr(value, "dtype"):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _from_data_set(name: str, data: Any) -> Raw:
    """The items (input, target) of a torch data set."""
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return _pair(name, *tensors)
    items = [data[i] for i in range(len(data))]
    if wrong := [i for i, item in enumerate(items) if not isinstance(item, tuple | list) or len(item) != 2]:
        raise DataError(f"peer {name}: item {wrong[0]} of its data set is no pair (input, target)")
    shapes = {np.shape(x): i for i, (x, _) in reversed(list(enumerate(items)))}
    if len(shapes) > 1:
        (first, _), (second, at) = sorted(shapes.items(), key=lambda one: one[1])[:2]
        raise DataError(
            f"peer {name}: sample 0 of its data set has shape {first}, but sample {at} has {second}: all samples need "
            "the same shape"
        )
    inputs = np.stack([np.asarray(x) for x, _ in items]) if items else np.zeros((0, 1))
    return _pair(name, inputs, [np.asarray(y) for _, y in items])


# --- targets become numbers -------------------------------------------------------------------------------------------


class _Numbering:
    """How targets become numbers: the classes of all peers together, or the targets themselves."""

    def __init__(self, classes: Array | None, numbers: bool) -> None:
        self._classes, self._numbers = classes, numbers

    @staticmethod
    def of(given: Mapping[str, Parts], reading: Reading) -> _Numbering:
        if reading.numbers:
            return _Numbering(None, True)
        if reading.classes is not None:
            return _Numbering(np.asarray(reading.classes), False)
        targets = [_plain(raw.y) for parts in given.values() for raw in parts.values()]
        if all(y.dtype.kind in "iu" and not (y < 0).any() for y in targets):
            return _Numbering(None, False)
        return _Numbering(np.unique(np.concatenate([y.reshape(-1) for y in _comparable(targets)])), False)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the classes, where they are not numbers from 0."""
        return () if self._classes is None else tuple(str(one) for one in self._classes.tolist())

    def samples(self, name: str, part: str, raw: Raw) -> Samples:
        if self._numbers:
            return Samples(raw.x, raw.y)
        y = _plain(raw.y)
        _check_classes(name, part, y)
        if self._classes is None:
            return Samples(raw.x, y)
        order = np.argsort(self._classes, kind="stable")
        if self._classes.dtype.kind != y.dtype.kind and "U" in (self._classes.dtype.kind, y.dtype.kind):
            y, classes = y.astype(str), self._classes.astype(str)
            order = np.argsort(classes, kind="stable")
        else:
            classes = self._classes
        place = np.searchsorted(classes, y, sorter=order).clip(max=len(classes) - 1)
        numbers = order[place]
        wrong = np.flatnonzero((classes[numbers] != y).reshape(len(y), -1).any(1))
        if len(wrong):
            listed = ", ".join(map(str, classes.tolist()[:8])) + (" …" if len(classes) > 8 else "")
            raise DataError(
                f"peer {name}: target {y[wrong[0]]!s} of its sample {wrong[0]} is none of the classes {listed}: add it "
                "to `classes`, or correct it"
            )
        return Samples(raw.x, numbers.astype(np.int64))


def _plain(y: Array) -> Array:
    """Targets as whole numbers or texts: booleans and real numbers without fractions are whole numbers."""
    if y.dtype.kind == "b":
        return y.astype(np.int64)
    if y.dtype.kind == "f" and np.isfinite(y).all() and (y == np.round(y)).all():
        return y.astype(np.int64)
    if y.dtype.kind == "O":
        texts = [isinstance(value, str) for value in y.reshape(-1)]
        return y.astype(str) if all(texts) else y
    return y


def _check_classes(name: str, part: str, y: Array) -> None:
    """Refuse targets that are no classes."""
    if y.dtype.kind in "iuU":
        return
    values = y.reshape(-1)
    missing = [i for i, value in enumerate(values) if value is None or value != value]
    if missing:
        raise DataError(
            f"peer {name}: sample {missing[0]} of its {part} data has no target: fill it in, or leave it out"
        )
    odd = next((i for i, value in enumerate(values) if not isinstance(value, str) and value != round(value)), 0)
    raise DataError(
        f"peer {name}: target {values[odd]!s} of sample {odd} of its {part} data is no class: give whole numbers or "
        "texts, or set task = 'regression' where targets are real numbers"
    )


def _comparable(targets: Sequence[Array]) -> list[Array]:
    """Targets of one type: as texts where some are."""
    if any(y.dtype.kind not in "iu" for y in targets):
        return [y.astype(str) for y in targets]
    return list(targets)
