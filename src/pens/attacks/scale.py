# SPDX-License-Identifier: Apache-2.0
"""Send the own model, multiplied by a number."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pens.attacks.attack import Attack, Sending
from pens.settings.section import Section

if TYPE_CHECKING:
    from torch import Tensor


class ScaleSettings(Section):
    """The attack scale."""

    title: ClassVar[str] = "scale"
    factor: float = 1e30
    """By how much attackers multiply their models."""


class Scale(Attack):
    """With a large factor a single such model decides a merge, or turns it into numbers that are not finite."""

    name = "scale"
    about = "attackers send their models multiplied by a number"
    section = ScaleSettings

    def send(self, sending: Sending, options: ScaleSettings) -> Tensor:
        return sending.own * options.factor
