# SPDX-License-Identifier: Apache-2.0
"""A folder of images by peer and class: half of the 12 scanners write negatives, white on black for black on white."""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import pens

SETTINGS = {"rounds": 20, "step1_rounds": 5, "step1_samplings": 5, "step1_epochs": 10}


def write_images(folder: Path) -> None:
    """60 digits of each scanner, as folder/scanner-3/seven/41.png."""
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    digits = load_digits()
    for place, sample in enumerate(np.random.default_rng(0).permutation(len(digits.target))[:720]):
        target = folder / f"scanner-{place % 12}" / names[digits.target[sample]]
        target.mkdir(parents=True, exist_ok=True)
        pixels = (digits.images[sample] * 15.9).astype(np.uint8)
        Image.fromarray(255 - pixels if place % 2 else pixels).save(target / f"{place}.png")


if __name__ == "__main__":  # python examples/image_folder.py rounds=3
    write_images(Path("scanners"))
    changes = dict(word.split("=") for word in sys.argv[1:])
    print(pens.run(data="scanners", overrides=SETTINGS | changes, seeds=3))
