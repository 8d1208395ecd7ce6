# SPDX-License-Identifier: Apache-2.0
"""`pens+`: pens with changes that are not the paper's (docs/decisions/0040 and 0019)."""

from __future__ import annotations

from pens.methods.pens import Pens
from pens.settings.tree import Settings

ALONE_ROUNDS = 20
"""Updates without others: after so many, training alone brings nothing more on the data sets of the paper."""


class PensPlus(Pens):
    """It selects neighbours otherwise, begins step 2 with another model, and tests what validation data prefer."""

    name = "pens+"
    about = (
        "pens with changes that are not the paper's: neighbours are the group of peers whose models have the lowest "
        "losses; a peer tests its merged or its fine-tuned model, or one that it trained alone, whichever its "
        "validation data prefer; and step 2 begins with the model that was best on its validation data in step 1, or, "
        "where all peers began with the same model, with that one again"
    )
    colours = ("#6b3fa0", "#b89af0")
    plus_of = "pens"

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace(
            {
                "neighbours_by": "levels",
                "validated": "either",
                "alone_rounds": ALONE_ROUNDS,
                "step2_model": "first" if settings.model.init == "common" else "best",
            }
        )
