# SPDX-License-Identifier: Apache-2.0
"""Covariate shift by rotation: each cluster's images are turned by another angle.

Published on CIFAR-10: 0, 180, 10 and 350 degrees for 70, 20, 5 and 5 peers (DAC, Listo Zec et al. 2022).
"""

from __future__ import annotations

from pens.data.samples import Dataset, Samples
from pens.partitions.axes import Shift, View
from pens.partitions.rotation import ROTATION_KEYS, check_square, rotate, rotation_names
from pens.settings.tree import Settings


class Rotation(Shift):
    """A rotation for each cluster, by the setting `rotations`."""

    name = "rotation"
    about = "each cluster's images are turned by another angle"
    keys = ROTATION_KEYS

    def check(self, settings: Settings, dataset: Dataset | None = None) -> None:
        if dataset:
            check_square(dataset, settings.scenario)

    def clusters(self, settings: Settings) -> tuple[str, ...]:
        return rotation_names(settings.scenario)

    def apply(self, samples: Samples, view: View) -> Samples:
        scenario = view.settings.scenario
        return rotate(samples, scenario.rotations[view.cluster], scenario.half_turn, scenario.interpolation)
