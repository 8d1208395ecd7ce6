# SPDX-License-Identifier: Apache-2.0
"""Own peers: what they may be given as, what is split off, how labels become classes, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data import Dataset as TorchDataset

import pens
from pens.data.doubts import doubts
from pens.data.samples import Samples
from pens.data.scenarios import UNKNOWN, Federation
from pens.data.splits import split
from pens.errors import DataError, NotEnoughData, ResultError, SettingsError
from pens.measuring.metrics import neighbour_agreement

X, Y = np.arange(20, dtype=np.float32).reshape(10, 2), np.arange(10) % 2


class Items(TorchDataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.from_numpy(X[place]), int(Y[place])


TABLE = pa.table({"a": X[:, 0], "b": X[:, 1], "label": Y})


@pytest.mark.parametrize(
    "data",
    [
        (X, Y), [X, Y], {"x": X, "y": Y}, (X.tolist(), Y.tolist()), (torch.from_numpy(X), torch.from_numpy(Y)),
        (X, Y[:, None]), Samples(X, Y), TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), Items(), TABLE,
    ],
    ids=lambda given: type(given).__name__,
)  # fmt: skip
def test_a_peers_data_may_be_given_in_many_forms(data: Any) -> None:
    """All give the same federation: 6 training, 2 validation and 2 test samples, the latter with one of each class."""
    made, usual = Federation.of({"a": data, "b": (X, Y)}), Federation.of({"a": (X, Y), "b": (X, Y)})
    assert made.fingerprint == usual.fingerprint
    assert [len(made.peers[0].train), len(made.peers[0].val), len(made.tests[0])] == [6, 2, 2]
    assert sorted(made.peers[0].val.y.tolist()) == sorted(made.tests[0].y.tolist()) == [0, 1]
    assert (made.peer_names, made.clusters, made.num_classes) == (("a", "b"), None, 2)


@pytest.mark.parametrize(
    "x",
    [
        torch.from_numpy(X).to(torch.bfloat16), torch.from_numpy(X).requires_grad_(), X.astype(object),
        np.asfortranarray(X.astype(">f8")), X.astype(np.float16),
    ],
)  # fmt: skip
def test_inputs_may_be_of_any_type_of_numbers(x: Any) -> None:
    assert Federation.of({"a": (x, Y)}).peers[0].train.x.dtype == np.float32
    assert Federation.of({"a": (x, Y)}).fingerprint == Federation.of({"a": (X, Y)}).fingerprint


def test_a_single_number_per_sample_is_one_feature() -> None:
    assert Federation.of({"a": (X[:, 0], Y)}).sample_shape == (1,)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([5_000_000, 12, 12] * 3, ("12", "5000000")),
        ([b"no", b"yes", b"no"] * 3, ("no", "yes")),
        (np.array(["2020-01-02", "2020-01-01", "2020-01-01"] * 3, "M8[D]"), ("2020-01-01", "2020-01-02")),
        (np.array([1, "b", "b"] * 3, object), ("1", "b")),
    ],
)
def test_labels_may_be_codes_texts_and_dates(labels: Any, names: tuple[str, ...]) -> None:
    """A postcode is no number of a class: five million classes would not fit any memory."""
    made = Federation.of({"a": (X[:9], labels)})
    assert (made.class_names, made.num_classes) == (names, 2)


def test_a_table_says_clusters_in_python_too() -> None:
    table = TABLE.append_column("peer", pa.array(["a", "b"] * 5))
    known = table.append_column("cluster", pa.array(["x", "y"] * 5))
    assert Federation.of(known).clusters == (0, 1)
    assert Federation.of(known, clusters=["u", "u"]).cluster_names == ("u",)
    with pytest.raises(DataError, match="peer a is in the clusters 0 and 1"):
        Federation.of(table.append_column("cluster", pa.array([0, 0, 1, 0, 0, 0, 0, 0, 0, 0])))


def test_given_parts_stay_as_they_are() -> None:
    three = Federation.of({"a": ((X, Y), (X[:3], Y[:3]), (X[:1], Y[:1]))})
    assert [len(three.peers[0].train), len(three.peers[0].val), len(three.tests[0])] == [10, 3, 1]
    assert three.peers[0].train.x.tolist() == X.tolist()
    two = Federation.of({"a": (Samples(X, Y), Samples(X[:3], Y[:3]))}, test_share=0.3)
    assert [len(two.peers[0].train), len(two.peers[0].val), len(two.tests[0])] == [7, 3, 3]
    named = Federation.of({"a": {"train": (X, Y), "test": (X[:4], Y[:4])}})
    assert [len(named.peers[0].train), len(named.peers[0].val), len(named.tests[0])] == [8, 2, 4]


def test_a_table_is_divided_by_its_column_of_peers() -> None:
    """In the order in which they come first; parts and clusters have columns, too."""
    table = pa.table(
        {
            "who": ["b", "a", "b", "a", "a", "b"], "x": [1.0, 2, 3, 4, 5, 6],
            "is": ["yes", "no", "no", "yes", "yes", "yes"],
            "split": ["train", "train", "val", "test", "Validation", "test"],
        }
    )  # fmt: skip
    made = Federation.of(table, peer="who", target="is")
    assert made.peer_names == ("b", "a")
    assert made.class_names == ("no", "yes")
    told = [
        (p.train.x.tolist(), p.train.y.tolist(), p.val.x.tolist(), t.x.tolist())
        for p, t in zip(made.peers, made.tests, strict=True)
    ]
    assert told == [([[1.0]], [1], [[3.0]], [[6.0]]), ([[2.0]], [0], [[5.0]], [[4.0]])]


def test_classes_are_those_of_all_peers_together() -> None:
    """Whole numbers from 0 are classes as they stand; texts, truth values and negative numbers get numbers in order."""

    def labels(*of: Any, **how: Any) -> Federation:
        return Federation.of({str(i): (np.zeros((len(y), 1)), y) for i, y in enumerate(of)}, **how)

    assert labels([0, 1, 1], [4, 4, 4]).num_classes == 5
    assert labels([0, 1, 1], [1, 1, 1], num_classes=7).num_classes == 7
    texts = labels(["dog", "cat", "cat"], ["eel", "eel", "eel"])
    assert texts.class_names == ("cat", "dog", "eel")
    assert sorted(texts.peers[0].train.y.tolist() + texts.peers[0].val.y.tolist() + texts.tests[0].y.tolist()) == [
        0,
        0,
        1,
    ]
    assert labels([-1, 1, 1], [1, 1, 1]).class_names == ("-1", "1")
    assert labels([True, False, True], [True] * 3).num_classes == 2
    assert labels([0.0, 2.0, 1.0], [1.0] * 3).num_classes == 3
    listed = labels(["b", "a", "b"], ["a"] * 3, classes=["c", "b", "a"])
    assert (listed.class_names, listed.num_classes, int(listed.peers[1].train.y[0])) == (("c", "b", "a"), 3, 2)


def test_clusters_may_be_known_for_some() -> None:
    peers = dict.fromkeys("abcd", (X, Y))
    assert Federation.of(peers, clusters={"a": "x", "c": "y", "d": "x"}).clusters == (0, UNKNOWN, 1, 0)
    assert Federation.of(peers, clusters=["x", "x", "y", "y"]).smallest_cluster == 2
    some = Federation.of(peers, clusters=["x", None, "y", "y"])
    assert (some.smallest_cluster, some.members()) == (None, {0: (0,), 1: (2, 3)})


def test_precision_and_recall_leave_out_peers_of_unknown_clusters() -> None:
    """Peers 0, 1 and 3 are of cluster 0, peer 4 of 1, and nothing is known of 2. Peer 0 chose 1, 2 and 4: of the two
    that are known one is right, of two that would be right one is found. Peer 2's choice does not count."""
    found = neighbour_agreement({0: (1, 2, 4), 2: (0, 1)}, (0, 0, UNKNOWN, 0, 1))  # type: ignore[dict-item]
    assert found is not None
    assert (found.precision, found.recall) == (0.5, 0.5)


def test_inputs_are_standardised_by_the_training_data_of_each_peer() -> None:
    x = np.array([[0.0, 5.0], [2.0, 5.0], [4.0, 5.0]])
    made = Federation.of({"a": ((x, [0, 1, 0]), (x + 2, [0, 1, 0]), (5 * x, [0, 1, 0]))}, standardise=True)
    deviation = np.sqrt(8 / 3)
    assert made.peers[0].train.x == pytest.approx(np.array([[-2, 0], [0, 0], [2, 0]]) / [deviation, 1])
    assert made.peers[0].val.x == pytest.approx(np.array([[0, 2], [2, 2], [4, 2]]) / [deviation, 1])


@given(
    st.lists(st.integers(0, 3), min_size=3, max_size=60),
    st.floats(0.05, 0.45),
    st.floats(0.05, 0.45),
    st.integers(0, 9),
)
def test_splits_keep_the_mix_of_classes(labels: list[int], val: float, test: float, seed: int) -> None:
    """Disjoint, complete, at least one sample each, of the sizes asked for; each class within one of its share."""
    samples = Samples(np.arange(len(labels), dtype=np.float32)[:, None], np.array(labels))
    parts = split("a", samples, [val, test], seed)
    places = np.concatenate([part.x[:, 0] for part in parts])
    assert sorted(places.tolist()) == list(range(len(labels)))
    assert min(map(len, parts)) >= 1
    again = split("a", samples, [val, test], seed)
    assert [part.x.tolist() for part in again] == [part.x.tolist() for part in parts]
    for label in set(labels):
        in_test = (parts[2].y == label).sum()
        assert abs(in_test - labels.count(label) * len(parts[2]) / len(labels)) <= 1


def test_other_names_and_seeds_split_otherwise() -> None:
    samples = Samples(np.arange(100, dtype=np.float32)[:, None], np.zeros(100, int))
    first = split("a", samples, [0.2], 0)[1].x.tolist()
    assert split("b", samples, [0.2], 0)[1].x.tolist() != first
    assert split("a", samples, [0.2], 1)[1].x.tolist() != first


@pytest.mark.parametrize(
    ("peers", "how", "reason"),
    [
        ({}, {}, "0 peers"),
        (7, {}, "peers are given as a int"),
        ({"a": "x.csv"}, {}, "peer a: its data are a str"),
        ({"a": (X[:2], Y[:2])}, {}, "peer a has 2 samples, but needs one for each of training, validation, test"),
        ({"a": (X, Y[:4])}, {}, "peer a has 10 inputs but 4 targets"),
        ({"a": (X, Y / 4)}, {}, "peer a: target 0.25 of sample 1 .* set task = 'regression'"),
        ({"a": (X, np.where(Y, np.nan, 1.0))}, {}, "peer a: sample 1 of its train data has no target"),
        ({"a": (X, [None, *Y[1:]])}, {}, "peer a: sample 0 of its train data has no target"),
        ({"a": (X, np.array(1))}, {}, "peer a: its targets are 1, a single value"),
        ({"a": (X, [np.inf, *Y[1:]])}, {}, "peer a: target inf of sample 0"),
        ({"a": (np.where(X == 5, np.inf, X), Y)}, {}, "the inputs of peer a: 1 of 10 samples .* is sample 2, .* inf"),
        ({"a": (np.where(X == 5, "?", X.astype(object)), Y)}, {}, "peer a: sample 2 of its inputs holds '\\?'"),
        ({1: (X, Y), "1": (X, Y)}, {}, "two peers are called '1'"),
        ({" ": (X, Y)}, {}, "peer 0 .* has the name ' ': give"),
        ({"\x1b[31mred": (X, Y)}, {}, r"peer '\\x1b\[31mred' has characters in its name that cannot be shown"),
        ({"a\u202e": (X, Y)}, {}, r"peer 'a\\u202e' has characters"),
        ({"a": {"train": None, "test": (X, Y)}}, {}, "peer a has no training data, only test"),
        ({"a": (X, Y)}, {"classes": [0, 1, 1]}, "classes lists '1' twice"),
        ({"a": DataLoader(Items())}, {}, "peer a: its data are a DataLoader: pass its data set"),
        (pa.table([[1.0], [2.0]], ["x", "x"]), {}, "has 2 columns 'x'"),
        (pa.table({"peer": ["a", "b"], "x": [1.0, np.inf], "label": [0, 1]}), {}, r"holds inf in row 2 \(peer b\)"),
        ({"a": (np.full((3, 1), "x"), [0, 1, 0])}, {}, "peer a: its inputs have shape .* the first is 'x'"),
        ({"a": (X, Y)}, {"num_classes": 1}, "label 1 of sample 1 of its train data, but num_classes = 1"),
        ({"a": (X, Y * 99999)}, {"num_classes": 1}, "num_classes = 1, but the data have 2 classes, 0, 99999"),
        ({"a": (csr_matrix(X), Y)}, {}, r"peer a: its inputs are a sparse csr_matrix: pass its \.toarray\(\)"),
        ({"a": (np.ma.masked_greater(X, 5), Y)}, {}, "peer a: [0-9]+ numbers of its inputs are masked: fill them in"),
        ({"a": (X[:, :0], Y)}, {}, r"peer a: its inputs have shape \(10, 0\): a sample has no features"),
        ({"a": (X, Y), "b": (X[:, :1], Y)}, {}, r"peer a's training .* shape \(2,\) .* but peer b's training .*\(1,\)"),
        ({"a": ((X, Y), (X[:, :1], Y))}, {"standardise": True}, r"peer a's validation data inputs of shape \(1,\)"),
        ({"a": (X, Y)}, {"classes": [0, 2]}, "target 1 of sample 1 of its train data is none of the classes 0, 2"),
        ({"a": (X, Y)}, {"clusters": {"b": "x"}}, "clusters name the peer 'b', which has no data"),
        ({"a": (X, Y)}, {"clusters": ["x", "y"]}, "1 peers, but clusters for 2"),
        ({"a": (X, Y)}, {"val_share": 0.6, "test_share": 0.5}, "each has to be above 0, and together"),
        ({"a": (X, Y)}, {"val_share": 0.0}, "shares of 0 and 0.2 .* each has to be above 0"),
        ({"a": {"train": (X, Y), "tset": (X, Y)}}, {}, "peer a has a part 'tset'"),
        ({"a": ((X, Y), (X[:0], Y[:0]))}, {}, "peer a: its validation part is empty"),
        (TABLE, {}, "has no column 'peer' of peers: its columns are .* Set peer_column to the right one"),
        (TABLE.append_column("peer", pa.array(["a"] * 10)), {"target": "lable"}, "'lable' .* target_column .*'label'"),
        (pa.table({"peer": ["b", "b"], "x": [1, 2], "label": [0.0, 0.5]}), {}, "peer b: target 0.5 of row 2"),
        (pa.table({"peer": ["b", "b"], "x": [1, 2], "label": [0, 2]}), {"num_classes": 2}, "peer b: label 2 of row 2"),
        (pa.table({"peer": ["a"], "x": ["?"], "label": [0]}), {"ignore": ["y"]}, "no column 'y' .* ignore_columns"),
        (pa.table({"peer": ["a"], "label": [1]}), {}, "none is left as a feature"),
        (pa.table({"peer": ["a", None], "x": [1.0, 2.0], "label": [0, 1]}), {}, "row 2 has no peer"),
        (pa.table({"peer": ["a", "b"], "x": [1.0, None], "label": [0, 1]}), {}, r"'x' is empty in row 2 \(peer b\)"),
        (pa.table({"peer": ["a", "b"], "x": ["1", "?"], "label": [0, 1]}), {}, r"holds '\?' in row 2 \(peer b\)"),
        (pa.table({"peer": ["a", "b"], "x": [1, 2], "label": [0, None]}), {}, r"row 2 \(peer b\) has no label"),
        (pa.table({"peer": ["a", "b"], "x": [1, 2], "label": [0, 1], "split": ["train", "tets"]}), {}, "'tets' in row"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_peer_row_and_remedy(peers: Any, how: dict[str, Any], reason: str) -> None:
    with pytest.raises((DataError, NotEnoughData), match=reason):
        Federation.of(peers, **how)


def test_what_is_odd_but_may_be_meant_is_told() -> None:
    """Names that differ in capitals or spaces alone, of peers and of classes, and samples of one class."""
    odd = Federation.of({"North": (X, ["ill"] * 9 + ["Ill"]), "north ": (X, ["ill"] * 10), "south": (X, ["ill"] * 10)})
    assert doubts(odd) == [
        "the peers 'North', 'north ' differ in capitals and spaces alone: if they are one, give them one name",
        "the classes 'Ill', 'ill' differ in capitals and spaces alone: if they are one, give them one name",
    ]
    assert doubts(Federation.of({"a": (X, np.full(10, 7)), "b": (X, np.full(10, 7))})) == [
        "all samples are of the class 7: there is nothing to tell apart"
    ]
    same = Federation.of({"a": (X, X[:, 0] * 0), "b": (X, X[:, 0] * 0)}, numbers=True)
    assert doubts(same, has_classes=False) == doubts(Federation.of({"a": (X, Y), "b": (X, Y)})) == []
    with pytest.warns(pens.PensWarning, match="the peers 'a', 'A' differ"):
        pens.run(data={"a": (X, Y), "A": (X, Y)}, methods="local", overrides={"rounds": 1}, device="cpu")


def test_three_peers_of_unequal_size_simply_run() -> None:
    """60 to 6,000 samples, no cluster known, and numbers of models that fit themselves to three peers."""
    random = np.random.default_rng(0)
    data = {
        name: (random.normal(size=(n, 3)), random.integers(0, 3, n)) for name, n in (("a", 60), ("b", 600), ("c", 30))
    }
    quick = {"rounds": 2, "step1_rounds": 1, "step1_samplings": 2, "step1_epochs": 1}
    result = pens.run(data=Federation.of(data), overrides=quick, device="cpu")
    assert result.methods == ("local", "random", "pens")
    settings = result.settings
    assert (settings.scenario.peers, settings.gossip.n_peers, settings.pens.n_sampled, settings.pens.m) == (3, 1, 2, 1)
    assert result.runs[0].peer_names == ("a", "b", "c")
    assert result.runs[0].data_sizes is not None
    assert result.runs[0].data_sizes.train.tolist() == [36, 360, 18]


def test_a_mapping_and_a_network_with_sizes_run_in_few_lines(tmp_path: Path) -> None:
    """`pens.run` gives a network its sizes, and models are found by the peers' names, after loading, too."""
    data = {f"clinic {i}": (X + i, np.where(Y, "ill", "well")) for i in range(3)}
    quick = {"rounds": 1, "step1_rounds": 1, "step1_samplings": 1, "step1_epochs": 1}
    how: Any = {"data": data, "model": Sized, "overrides": quick, "device": "cpu"}
    made = pens.run(**how, methods="local,pens", out=tmp_path / "run")
    assert set(made.run_of("pens").models["clinic 2"]) == {"out.weight", "out.bias"}
    assert pens.run(**how, methods="local").models.num_models == 3
    with pytest.raises(ResultError, match="choose one by method="):
        _ = made.models
    run = pens.load(tmp_path / "run").run_of("pens")
    weights: Any = run.models["clinic 2"]
    assert weights["out.weight"].tolist() == run.models["out.weight"][2].tolist()
    assert set(run.predict("clinic 2", X, model=Sized)) <= {"ill", "well"}
    with pytest.raises(KeyError):
        run.models["clinic 9"]
    two = {name: data[name] for name in ("clinic 0", "clinic 1")}
    with pytest.raises(SettingsError, match="at least 3 peers, or other methods"):
        pens.run(data=two, overrides=quick, device="cpu")


class Sized(nn.Module):
    def __init__(self, shape: tuple[int, ...], num_classes: int, bias: bool = True) -> None:
        super().__init__()
        self.out = nn.Linear(shape[0], num_classes, bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(x)
        return scores


def test_positions_that_count_nowhere_are_of_no_class() -> None:
    """Numbers from 0 stay as they are; other classes get numbers, and −100 stays."""
    x = np.zeros((10, 3), np.float32)
    from_zero = np.array([[0, 2, -100], [1, -100, -100]] * 5)
    assert_kept(Federation.of({"a": (x, from_zero)}), from_zero, ())
    assert_kept(Federation.of({"a": (x, from_zero + 7 * (from_zero != -100))}, classes=[7, 8, 9]), from_zero, "789")
    named = np.array(["O", "PLACE", "TIME", "-100"])[from_zero % 103]
    assert_kept(Federation.of({"a": (x, named)}), from_zero, ("O", "PLACE", "TIME"))
    with pytest.raises(DataError, match=r"-5.*is none of the classes 0, 1, 2"):
        Federation.of({"a": (x, np.where(from_zero == 1, -5, from_zero))}, classes=[0, 1, 2])


def assert_kept(federation: Federation, expected: Any, names: Any) -> None:
    (peer,), (test,) = federation.peers, federation.tests
    held = np.concatenate([peer.train.y, peer.val.y, test.y])
    assert sorted(map(tuple, held)) == sorted(map(tuple, expected))
    assert federation.class_names == tuple(names)
