# SPDX-License-Identifier: Apache-2.0
"""Time series: 12 people make gestures. Half of them wear the sensor on the other wrist, which mirrors one axis."""

import sys

import numpy as np
from torch import Tensor, nn

import pens

SETTINGS = {"rounds": 20, "step1_rounds": 5, "step1_samplings": 5, "step1_epochs": 10}


def person(generator: np.random.Generator, mirrored: bool) -> tuple[np.ndarray, np.ndarray]:
    """60 gestures of 24 steps, on two axes: a turn to the left, a turn to the right, or a shake."""
    gesture = generator.integers(0, 3, 60)
    angle = np.linspace(0, 2 * np.pi, 24) + generator.uniform(0, 2 * np.pi, (60, 1))
    sideways = np.sin(angle) * np.array([1, -1, 0])[gesture, None] * (-1 if mirrored else 1)
    return np.stack([np.cos(angle), sideways], 2) + generator.normal(0, 0.8, (60, 24, 2)), gesture


def people() -> pens.Federation:
    generator = np.random.default_rng(0)
    return pens.Federation.of({f"person-{number}": person(generator, number % 2 == 1) for number in range(12)})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps, self.classes = nn.GRU(2, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:  # [batch, step, axis]
        scores: Tensor = self.classes(self.steps(x)[0][:, -1])
        return scores


if __name__ == "__main__":  # python examples/time_series.py rounds=3
    changes = dict(word.split("=") for word in sys.argv[1:])
    print(pens.run(data=people(), model=Net, overrides=SETTINGS | changes, seeds=3))
