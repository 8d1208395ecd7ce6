# SPDX-License-Identifier: Apache-2.0
"""Numbers to predict: the progress of diabetes at 10 clinics, whose patients are alike. Any gossip helps them all."""

import sys

import numpy as np
from sklearn.datasets import load_diabetes

import pens

SETTINGS = {"task": "regression", "lr": 1e-3, "rounds": 20, "step1_rounds": 5, "step1_samplings": 5}


def clinics() -> pens.Federation:
    """Each clinic has 44 patients, ten measurements of each, and the progress of the disease, in deviations."""
    table = load_diabetes()
    progress = (table.target - table.target.mean()) / table.target.std()
    rows = np.random.default_rng(0).permutation(len(progress))
    mine = {f"clinic-{number}": rows[44 * number : 44 * (number + 1)] for number in range(10)}
    data = {name: (table.data[of], progress[of]) for name, of in mine.items()}
    return pens.Federation.of(data, numbers=True, standardise=True)


if __name__ == "__main__":  # python examples/regression.py rounds=3
    changes = dict(word.split("=") for word in sys.argv[1:])
    print(pens.run(data=clinics(), overrides=SETTINGS | changes, seeds=3))
