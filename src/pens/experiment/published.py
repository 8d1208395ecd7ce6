# SPDX-License-Identifier: Apache-2.0
"""Settings of other papers on decentralised and clustered learning, as presets, and small forms of them for a laptop.

Each says where its values come from, and in what it differs: `pens presets NAME` prints this above the settings.
"""

from __future__ import annotations

from pens.experiment.bases import CIFAR10, LAPTOP, Preset, PresetValues

_DAC: PresetValues = {
    "dataset": "cifar-10",
    "peers": 100,
    "train_per_peer": 400,
    "val_per_peer": 100,
    "partition": "product",
    "rounds": 100,
    "patience": 100,
    "epochs": 3,
    "batch_size": 8,
    "optimizer": "adam",
    "n_peers": 5,
    "n_sampled": 5,
    "step1_rounds": 20,
    "step1_samplings": 5,
    "dac.tau": 30.0,
}
_DAC_SOURCE = """\
Source: Listo Zec et al. 2022, "Decentralized adaptive clustering of deep nets is beneficial for client collaboration"
(arXiv:2206.08839), and its code: 100 peers, 400 training and 100 validation samples each, drawn without replacement;
5 models drawn a round, 3 epochs of Adam in batches of 8, 100 rounds, tau = 30.

Not from there: lr (the code's default is 0.01, and the paper's value was not available to us: ours is that of PENS),
the network (the code has two, for two data sets; ours is that of PENS), and step 1 of pens."""

_FACADE: PresetValues = {
    "dataset": "cifar-10",
    "partition": "product",
    "shift": ["rotation"],
    "rotations": (0, 180),
    "test": "full",
    "peers": 32,
    "train_per_peer": 1462,
    "val_per_peer": 100,
    "net": "gn-lenet",
    "optimizer": "sgd",
    "lr": 0.01,
    "batch_size": 8,
    "epochs": 1,
    "rounds": 66,
    "patience": 66,
    "n_peers": 4,
    "step1_rounds": 13,
    "step1_samplings": 2,
}
_FACADE_SOURCE = """\
Source: Biswas et al. 2025, "Fair Decentralized Learning" (FACADE, SaTML; arXiv:2410.02541), and its code: CIFAR-10
shared out to 32 peers (1/32 each), rotations of 0 and 180 degrees, each cluster tested on the whole rotated test set,
GN-LeNet (about 90,000 parameters), SGD with lr = 0.01 in batches of 8; it tunes lr per method: 0.05 for el,
0.005 for dac.

What differs: there, a round is 10 steps and there are 1,200 rounds; here, a round is an epoch of 183 steps, and 66
rounds are as many steps (12,078 for 12,000), so that models are exchanged 18 times as rarely. There, each round has a
random 4-regular graph; here, each peer pulls from 4 random peers a round (n_peers = 4). There, a tenth of the test set
validates; here, 100 of each peer's 1,562 samples do. Step 1 of pens takes a fifth of the rounds,
with two samplings each, so that a peer is met some eight times: our choice."""

_DIRICHLET_SOURCE = """\
Source: label skew as many papers on personalised federated learning have it: 100 peers with label shares from
Dirichlet(alpha), alpha = 0.1, 0.3 or 0.5.

Here all peers have equally many samples (docs/decisions/0029), so accuracies need not be comparable
with those of libraries where sizes differ, too. Sizes, network and all else are those of the preset cifar-10."""


_LABELS: PresetValues = {
    "label_law": "classes",
    "class_groups": ((0, 1, 8, 9), (2, 3, 4, 5, 6, 7)),
    "cluster_shares": (40, 60),
}
_COVARIATE: PresetValues = {
    "shift": ["rotation"],
    "rotations": (0, 180, 10, 350),
    "interpolation": "nearest",
    "cluster_shares": (70, 20, 5, 5),
    "test": "full",
}
_LABELS_SOURCE = f"""\
{_DAC_SOURCE}

Clusters: 40 peers with vehicles (classes 0, 1, 8 and 9), 60 with animals; each is tested on its own classes."""
_COVARIATE_SOURCE = f"""\
{_DAC_SOURCE}

Clusters: rotations of 0, 180, 10 and 350 degrees for 70, 20, 5 and 5 peers; images are turned after scaling, each pixel
from the nearest one, with 0 (mid-grey) in the corners; each cluster is tested on the whole rotated test set."""

_SMALL: PresetValues = {**LAPTOP, "dataset": "fashion-mnist", "partition": "product"}
_SMALL_SOURCE = "A small form of the preset {of}, on Fashion-MNIST: other data, fewer peers, samples and rounds."


def _facade(first: int, second: int) -> Preset:
    about = f"FACADE: 32 peers, rotations of 0 and 180 degrees for {first} and {second} of them; for a GPU"
    return Preset(f"facade-{first}-{second}", about, {**_FACADE, "cluster_shares": (first, second)}, _FACADE_SOURCE)


def _dirichlet(alpha: float) -> Preset:
    about = f"label skew: 100 peers with label shares from Dirichlet({alpha}) on CIFAR-10; for a GPU"
    values = {**CIFAR10, "partition": "dirichlet", "dirichlet.alpha": alpha}
    return Preset(f"dirichlet-{alpha}", about, values, _DIRICHLET_SOURCE)


def _small(of: str, about: str, values: PresetValues) -> Preset:
    return Preset(f"{of}-small", f"{about}; minutes on a laptop", {**_SMALL, **values}, _SMALL_SOURCE.format(of=of))


_FEDFOMO: PresetValues = {
    "dataset": "cifar-10",
    "partition": "groups",
    "rotations": [0, 90, 180, 270],
    "sizes": [4, 4, 4, 3],
    "peers": 15,
    "train_per_peer": 2666,  # four fifths of a fifteenth of the images
    "val_per_peer": 667,
    "init": "common",
    "optimizer": "sgd",
    "lr": 0.1,
    "batch_size": 50,
    "epochs": 5,
    "rounds": 20,
    "n_peers": 4,  # "5 models", of which one is the peer's own
    "epsilon": 0.3,
    "epsilon_decay": 0.05,
}
_FEDFOMO_SOURCE = """\
Source: Zhang et al. 2021, "Personalized Federated Learning with First Order Model Optimization" (FedFomo), and the
README of its code: 15 clients of five distributions, 5 models per client, epsilon 0.3 falling by 0.05 a round, 20
rounds of 5 epochs of SGD with lr = 0.1 in batches of 50.

Not from there: its five distributions are groups of images with similar features; here there are four rotations.
Models are pulled from other peers, where the paper has a server that hands them on. The network is that of PENS."""

_IFCA: PresetValues = {
    "dataset": "cifar-10",
    "peers": 80,  # 200 in the paper, where each cluster has all 50,000 images; here no image belongs to two peers
    "train_per_peer": 500,
    "val_per_peer": 125,
    "participation": 0.1,
    "num_clusters": 2,
    "optimizer": "sgd",
    "lr": 0.25,
    "batch_size": 50,
    "epochs": 5,
    "rounds": 600,
}
_IFCA_SOURCE = """\
Source: Ghosh et al. 2020, "An Efficient Framework for Clustered Federated Learning" (IFCA), and the settings of its
code for rotated CIFAR-10: rotations of 0 and 180 degrees, two clusters, 500 samples per client, a tenth of the clients
take part in a round, 5 epochs of SGD with lr = 0.25 in batches of 50.

Not from there: 80 peers in place of 200, since no image belongs to two peers here; validation samples; the learning
rate does not decay (0.99 a round in the paper); the network is that of PENS."""


PUBLISHED: tuple[Preset, ...] = (
    Preset(
        "dac-labels",
        "DAC: 100 peers, 40 with vehicles and 60 with animals of CIFAR-10; for a GPU",
        {**_DAC, **_LABELS},
        _LABELS_SOURCE,
    ),
    Preset(
        "dac-covariate",
        "DAC: 100 peers, rotations of 0, 180, 10 and 350 degrees for 70, 20, 5 and 5 of them; for a GPU",
        {**_DAC, **_COVARIATE},
        _COVARIATE_SOURCE,
    ),
    _facade(16, 16),
    _facade(24, 8),
    _facade(30, 2),
    *map(_dirichlet, (0.1, 0.3, 0.5)),
    Preset(
        name="fedfomo",
        about="FedFomo: 15 peers of CIFAR-10, four rotations for its distributions",
        values=_FEDFOMO,
        source=_FEDFOMO_SOURCE,
    ),
    Preset(
        name="ifca",
        about="IFCA: 80 peers of 500 samples of CIFAR-10, two rotations; for a GPU",
        values=_IFCA,
        source=_IFCA_SOURCE,
    ),
    _small(
        "dac-labels",
        "20 peers, 8 with shoes and bags, 12 with clothes",
        {"label_law": "classes", "class_groups": ((5, 7, 8, 9), (0, 1, 2, 3, 4, 6)), "cluster_shares": (8, 12)},
    ),
    _small(
        "dac-covariate",
        "20 peers, rotations of 0, 180, 10 and 350 degrees for 10, 6, 2 and 2 of them",
        {**_COVARIATE, "cluster_shares": (10, 6, 2, 2)},
    ),
    _small(
        "facade-30-2",
        "20 peers, rotations of 0 and 180 degrees for 18 and 2 of them",
        {"shift": ["rotation"], "rotations": (0, 180), "cluster_shares": (18, 2), "test": "full", "n_peers": 4},
    ),
    _small(
        "dirichlet-0.3",
        "20 peers with label shares from Dirichlet(0.3)",
        {"partition": "dirichlet", "dirichlet.alpha": 0.3},
    ),
)
"""The presets of other papers' settings, and their small forms."""
