# SPDX-License-Identifier: Apache-2.0
"""Send the negative of the own model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pens.attacks.attack import Attack, Sending

if TYPE_CHECKING:
    from torch import Tensor

    from pens.settings.section import Section


class Negate(Attack):
    """What a merge adds, this takes away."""

    name = "negate"
    about = "attackers send the negatives of their models"

    def send(self, sending: Sending, options: Section | None) -> Tensor:
        return -sending.own
