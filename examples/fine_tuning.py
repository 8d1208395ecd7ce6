# SPDX-License-Identifier: Apache-2.0
"""A backbone that knows digits 0 to 4 is frozen; 12 peers train a head on 5 to 9, half of them upside down."""

import sys

import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn, tensor

import pens

SETTINGS = {"lr": 1e-2, "rounds": 20, "step1_rounds": 5, "step1_samplings": 5, "step1_epochs": 10}
X, Y = load_digits(return_X_y=True)
TRAINED = MLPClassifier((128, 64), max_iter=300, random_state=0).fit(X[Y < 5] / 16, Y[Y < 5])  # yours comes from a file


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        first, second, self.head = nn.Linear(64, 128), nn.Linear(128, 64), nn.Linear(64, 5)
        for layer, weight, bias in zip((first, second), TRAINED.coefs_, TRAINED.intercepts_, strict=False):
            layer.load_state_dict({"weight": tensor(weight.T), "bias": tensor(bias)})
        self.backbone = nn.Sequential(first, nn.ReLU(), second, nn.ReLU()).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:  # [batch, pixel]
        scores: Tensor = self.head(self.backbone(x))
        return scores


def peers() -> pens.Federation:
    """40 images of each peer. A digit upside down is its pixels in the opposite order."""
    mine = np.random.default_rng(0).permutation(np.flatnonzero(Y >= 5))[:480].reshape(12, 40)
    return pens.Federation.of([(X[of][:, :: -1 if i % 2 else 1] / 16, Y[of] - 5) for i, of in enumerate(mine)])


if __name__ == "__main__":  # python examples/fine_tuning.py rounds=3
    changes = dict(word.split("=") for word in sys.argv[1:])
    print(pens.run(data=peers(), model=Net, overrides=SETTINGS | changes, seeds=3))
