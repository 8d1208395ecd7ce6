# SPDX-License-Identifier: Apache-2.0
"""Train on wrong labels: class 0 for the last one, 1 for the last but one, and so on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pens.attacks.attack import Attack
from pens.data.samples import Samples
from pens.errors import SettingsError

if TYPE_CHECKING:
    from pens.settings.section import Section


class LabelFlip(Attack):
    """Attackers send what they trained, honestly, on data that are wrong."""

    name = "label-flip"
    about = "attackers train on wrong labels: each class takes the place of its mirror image"
    forges = False

    def train_on(self, data: Samples, num_outputs: int, options: Section | None) -> Samples:
        if not np.issubdtype(data.y.dtype, np.integer):
            raise SettingsError("attack = label-flip needs classes, but the task has none: choose another attack")
        return replace(data, y=np.where(data.y < 0, data.y, num_outputs - 1 - data.y))
