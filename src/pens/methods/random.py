# SPDX-License-Identifier: Apache-2.0
"""`random`: gossip with random others (paper, Algorithm 1), and `random+`."""

from __future__ import annotations

from pens.methods.method import Method, Participants
from pens.settings.tree import RunSettings, Settings


class Random(Method):
    """Every peer gossips with everybody."""

    name = "random"
    about = "gossip with random others"
    colours = ("#c05000", "#ee8a3c")
    networked = True
    is_baseline = True

    def check(self, settings: RunSettings, who: Participants) -> None:
        who.check_enough("n_peers", settings.gossip.n_peers)


class RandomPlus(Random):
    """The same with merged or fine-tuned models (docs/decisions/0040)."""

    name = "random+"
    about = "random that tests merged or fine-tuned models, whichever its validation data prefer"
    colours = ("#8f6a00", "#e0c341")
    plus_of = "random"
    is_baseline = False

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace({"validated": "either"})
