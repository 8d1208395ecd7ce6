# SPDX-License-Identifier: Apache-2.0
"""Send random numbers of the size of the own model's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pens.attacks.attack import Attack, Sending
from pens.attacks.echo_then_negate import noisy

if TYPE_CHECKING:
    from torch import Tensor

    from pens.settings.section import Section


class Noise(Attack):
    """Nothing of a model but its size."""

    name = "noise"
    about = "attackers send random numbers"

    def send(self, sending: Sending, options: Section | None) -> Tensor:
        return noisy(sending.own * 0, 1.0, sending.key, like=sending.own)
