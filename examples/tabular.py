# SPDX-License-Identifier: Apache-2.0
"""A table: 16 clinics diagnose tumours. Half of them code the diagnosis the other way round, and nobody knows which."""

import sys

import numpy as np
from sklearn.datasets import load_breast_cancer

import pens

SETTINGS = {"lr": 1e-3, "rounds": 20, "step1_rounds": 5, "step1_samplings": 5, "step1_epochs": 10}


def clinics() -> pens.Federation:
    """Each clinic has 35 patients. They measured only how much cells of one tumour differ: ten of the table's columns.
    Odd clinics write 1 for a malignant tumour, even ones for a benign one."""
    table = load_breast_cancer()
    rows = np.random.default_rng(0).permutation(len(table.target))
    data = {}
    for number in range(16):
        mine = rows[35 * number : 35 * (number + 1)]
        data[f"clinic-{number}"] = (table.data[mine, 10:20], (table.target[mine] + number) % 2)
    return pens.Federation.of(data, test_share=0.3, standardise=True)


if __name__ == "__main__":  # python examples/tabular.py rounds=3
    changes = dict(word.split("=") for word in sys.argv[1:])
    print(pens.run(data=clinics(), overrides=SETTINGS | changes, seeds=3))
