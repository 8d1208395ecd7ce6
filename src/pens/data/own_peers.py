# SPDX-License-Identifier: Apache-2.0
"""Federations of a user's own peers: `Federation.of` takes what people have, and splits off what is missing.

A peer's data may be a pair of arrays (x, y), `Samples`, `PeerData`, a torch data set, a table of columns (a DataFrame
or a pyarrow Table), a tuple (train, validation) or (train, validation, test) of these, or a mapping of these parts.
Inputs are numbers. Targets are class numbers from 0, texts or other values that become classes in sorted order, over
all peers together; or, for tasks that are no classification, numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from pens.data import tables
from pens.data.numbering import Numbering
from pens.data.preparation import Preparation, Standard
from pens.data.reading import PART_NAMES, Parts, Raw, Reading
from pens.data.samples import Array, Samples, check_alike, check_finite
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
    preparation: Preparation


def gather(
    peers: Mapping[str, Any] | Any,
    clusters: Mapping[str, Any] | Sequence[Any] | None,
    seed: int,
    reading: Reading,
) -> Gathered:
    """The data of these peers, in the order in which they are given."""
    given = _named(by_peer(peers, reading))
    if clusters is None and is_table(peers):
        clusters = tables.clusters_of_table(tables.as_arrow(peers), reading)
    numbering = Numbering.of(given, reading)
    held, tests, standards = [], [], []
    for name, parts in given.items():
        whole = {part: numbering.samples(name, part, raw) for part, raw in parts.items()}
        train, val, test = complete = _complete(name, whole, reading, seed)
        if reading.standardise:
            standards.append(standard := Standard.of(train.x))
            train, val, test = (Samples(standard.applied(part.x), part.y) for part in complete)
        held.append((train, val))
        tests.append(test)
    preparation = Preparation(_columns_of(given), tuple(standards))
    return Gathered(list(given), held, tests, _clusters_of(list(given), clusters), numbering.names, preparation)


def _named(pairs: Iterable[tuple[str, Parts]]) -> dict[str, Parts]:
    """The data of each peer by its name; each needs a name of its own, and training data that are numbers."""
    given: dict[str, Parts] = {}
    for name, parts in pairs:
        if not name.strip():
            raise DataError(f"peer {len(given)} (counted from 0) has the name {name!r}: give each peer a name")
        if not name.isprintable():
            raise DataError(f"peer {name!a} has characters in its name that cannot be shown: rename it")
        if name in given:
            raise DataError(f"two peers are called {name!r}: give each peer a name of its own")
        if "train" not in parts:
            there = " and ".join(parts) or "empty parts"
            raise DataError(f"peer {name} has no training data, only {there}: give it some, or leave it out")
        check_finite((f"the inputs of peer {name}", Samples(raw.x, np.zeros(len(raw.x)))) for raw in parts.values())
        given[name] = parts
    if not given:
        raise DataError("a federation has 0 peers: it needs at least one peer")
    return given


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
    named = (f"peer {name}'s {part} data" for part in ("training", "validation", "test"))
    check_alike([train, val, test], list(named).__getitem__)
    return [train, val, test]


def _columns_of(given: Mapping[str, Parts]) -> tuple[str, ...]:
    """The names of the features, which are the same in all tables; empty where some data come from no table."""
    pieces = [(name, raw.columns) for name, parts in given.items() for raw in parts.values()]
    named = [(name, columns) for name, columns in pieces if columns]
    for name, columns in named:
        first_name, first = named[0]
        for place, (ours, others) in enumerate(zip_longest(columns, first)):
            if ours != others:
                raise DataError(
                    f"feature {place + 1} of peer {name} is {ours or 'not there'}, but that of peer {first_name} is "
                    f"{others or 'not there'}: give all tables the same features in the same order"
                )
    return named[0][1] if len(named) == len(pieces) else ()


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


def by_peer(peers: Any, reading: Reading) -> Iterator[tuple[str, Parts]]:
    """The peers that are given, in their order, and what is given of each."""
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
    if isinstance(value, Mapping) and ("train" in value or set(value) <= {*PART_NAMES}):
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
    if isinstance(value, Raw):
        return replace(_pair(name, value.x, value.y), rows=value.rows, columns=value.columns)
    if is_table(value):
        return tables.columns_of_table(value, reading, name)
    if isinstance(value, Mapping) and {"x", "y"} <= set(value):
        value = (value["x"], value["y"])
    if isinstance(value, tuple | list) and len(value) == 2:
        return _pair(name, *value)
    if _is_data_set(value):
        return _from_data_set(name, value)
    if hasattr(value, "dataset"):
        raise DataError(f"peer {name}: its data are a {type(value).__name__}: pass its data set, .dataset")
    raise DataError(
        f"peer {name}: its data are a {type(value).__name__}: pass (x, y), pens.Samples, a torch data set, a table, or "
        "a tuple (train, validation, test) of these"
    )


def _raw(samples: Samples) -> Raw:
    return Raw(samples.x, samples.y)


def _pair(name: str, x: Any, y: Any) -> Raw:
    inputs, targets = _inputs(name, x), _as_array(name, "targets", y)
    if targets.ndim == 0:
        raise DataError(f"peer {name}: its targets are {str(targets)[:40]}, a single value: give one for each sample")
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if len(inputs) != len(targets):
        raise DataError(
            f"peer {name} has {len(inputs)} inputs but {len(targets)} targets: each sample needs one target"
        )
    return Raw(inputs, targets)


def _inputs(name: str, values: Any) -> Array:
    """Inputs as an array of numbers; where a sample is a single real number, that is its one feature."""
    array = _as_array(name, "inputs", values)
    if array.dtype.kind == "O":
        array = _of_objects(name, array)
    if array.ndim < 1 or array.dtype.kind not in "fiub":
        first = f", the first is {str(array.flat[0])[:40]!r}" if array.size else ""
        raise DataError(
            f"peer {name}: its inputs have shape {array.shape} and type {array.dtype}{first}: give numbers, as an "
            "array with one entry for each sample"
        )
    if 0 in array.shape[1:]:
        raise DataError(f"peer {name}: its inputs have shape {array.shape}: a sample has no features, give it some")
    if array.dtype.kind != "f":
        return array
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite, and are refused as such
        real = array.astype(np.float32, copy=False)
    return real[:, None] if real.ndim == 1 else real


def _as_array(name: str, what: str, values: Any) -> Array:
    """An array of anything that can be one: tensors of any device and type, with or without gradients, too."""
    if hasattr(values, "detach"):  # a tensor
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values
    if hasattr(values, "toarray"):  # a sparse matrix of SciPy
        raise DataError(f"peer {name}: its {what} are a sparse {type(values).__name__}: pass its .toarray()")
    if np.ma.is_masked(values):
        raise DataError(
            f"peer {name}: {int(np.ma.getmaskarray(values).sum()):,} numbers of its {what} are masked: fill them in, "
            "for instance by .filled(0), or leave the samples out"
        )
    try:
        return np.asarray(values)
    except (ValueError, TypeError) as error:
        raise DataError(
            f"peer {name}: its {what} are no array: {str(error).rstrip('.')}. Give all samples the same shape, for "
            "instance by padding"
        ) from None


def _of_objects(name: str, array: Array) -> Array:
    """Python's numbers in an array of objects, as real numbers."""
    try:
        return array.astype(np.float32)
    except (ValueError, TypeError):
        pass
    for i, sample in enumerate(array):
        for value in np.ravel(sample):
            try:
                float(value)
            except (ValueError, TypeError):
                raise DataError(
                    f"peer {name}: sample {i} of its inputs holds {value!r:.40}, which is no number: turn it into "
                    "numbers, or leave it out"
                ) from None
    raise DataError(f"peer {name}: its inputs are objects of different shapes: give all samples the same shape")


def is_table(value: Any) -> bool:
    """Whether something is a table of columns: a DataFrame or a pyarrow Table."""
    return type(value).__module__.split(".")[0] in ("pandas", "pyarrow", "polars") and hasattr(value, "columns")


def _is_data_set(value: Any) -> bool:
    if isinstance(value, str | tuple | list | Mapping | np.ndarray) or hasattr(value, "dtype"):
        return False
    return hasattr(value, "__getitem__") and hasattr(value, "__len__")


def _items(name: str, data: Any) -> Iterator[Any]:
    """What a data set of the user's own code holds, one by one."""
    place = 0
    try:
        for place in range(len(data)):
            yield data[place]
    except Exception as error:  # the user's own code
        raise DataError(f"peer {name}: item {place} of its data set fails: {type(error).__name__}: {error}") from error


def _from_data_set(name: str, data: Any) -> Raw:
    """The items (input, target) of a torch data set."""
    tensors = getattr(data, "tensors", None)
    if isinstance(tensors, tuple) and len(tensors) == 2:
        return _pair(name, *tensors)
    items = list(_items(name, data))
    if wrong := [i for i, item in enumerate(items) if not isinstance(item, tuple | list) or len(item) != 2]:
        raise DataError(f"peer {name}: item {wrong[0]} of its data set is no pair (input, target): return both")
    shapes = {np.shape(x): i for i, (x, _) in reversed(list(enumerate(items)))}
    if len(shapes) > 1:
        (first, _), (second, at) = sorted(shapes.items(), key=lambda one: one[1])[:2]
        raise DataError(
            f"peer {name}: sample 0 of its data set has shape {first}, but sample {at} has {second}: all samples need "
            "the same shape"
        )
    inputs = np.stack([np.asarray(x) for x, _ in items]) if items else np.zeros((0, 1))
    return _pair(name, inputs, [np.asarray(y) for _, y in items])
