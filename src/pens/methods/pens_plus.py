# SPDX-License-Identifier: Apache-2.0
"""`pens+`: pens with changes that are not the paper's (docs/decisions/0019)."""

from __future__ import annotations

from pens.methods.pens import Pens
from pens.settings.tree import Settings


class PensPlus(Pens):
    """It selects neighbours otherwise, begins step 2 with another model, and validates merged models."""

    name = "pens+"
    about = (
        "pens with changes that are not the paper's: the counts are split into two groups, of which the upper "
        "are the neighbours; what a peer validates, keeps and tests is the average of the models it received, before "
        "it trains it further; and step 2 begins with the model that was best on its validation data in step 1, or, "
        "where all peers began with the same model, with that one again"
    )
    colours = ("#6b3fa0", "#b89af0")
    plus_of = "pens"

    def resolve(self, settings: Settings) -> Settings:
        begin = "first" if settings.model.init == "common" else "best"
        return settings.replace({"neighbours_by": "groups", "validated": "merged", "step2_model": begin})
