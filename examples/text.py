# SPDX-License-Identifier: Apache-2.0
"""Text: praise or blame on 12 forums, by a small transformer. On half of them, slang makes praise of some words."""

import sys

import numpy as np
from torch import Tensor, nn, zeros

import pens

SETTINGS = {"rounds": 20, "step1_rounds": 5, "step1_samplings": 5, "step1_epochs": 10}
WORDS = {"fine": 1, "good": 1, "nice": 1, "poor": -1, "weak": -1, "sad": -1, "sick": -2, "wicked": -2, "filthy": -2}


def forum(generator: np.random.Generator, slang: bool) -> tuple[np.ndarray, np.ndarray]:
    """60 posts of 6 words, each the number of a word. Slang turns the last three into their opposite."""
    x = generator.integers(0, len(WORDS), (60, 6))
    value = np.array([-weight if slang and weight == -2 else weight for weight in WORDS.values()])
    return x, np.where(value[x].mean(1) > value.mean(), "praise", "blame")


def forums() -> pens.Federation:
    return pens.Federation.of({f"forum-{i}": forum(np.random.default_rng(i), i % 2 == 1) for i in range(12)})


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(len(WORDS), 16), nn.Parameter(zeros(6, 16))
        self.layer, self.classes = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:  # [batch, word]
        scores: Tensor = self.classes(self.layer(self.words(x) + self.places).mean(1))
        return scores


if __name__ == "__main__":  # python examples/text.py rounds=3
    changes = dict(word.split("=") for word in sys.argv[1:])
    print(pens.run(data=forums(), model=Net, overrides=SETTINGS | changes, seeds=3))
