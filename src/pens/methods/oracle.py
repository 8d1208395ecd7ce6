# SPDX-License-Identifier: Apache-2.0
"""`oracle`: gossip within the true clusters (paper, section 5.3), and `oracle+`."""

from __future__ import annotations

from collections.abc import Sequence

from pens.errors import SettingsError
from pens.methods.method import Method, Participants
from pens.parts import PARTITIONS
from pens.protocol.messages import PeerId
from pens.settings.tree import RunSettings, Settings


class Oracle(Method):
    """Every peer gossips with those of its cluster."""

    name = "oracle"
    about = "gossip within the peer's own cluster: an upper bound, because it needs to know the true clusters"
    colours = ("#00805c", "#2fc495")
    told_clusters = True

    def check(self, settings: RunSettings, who: Participants) -> None:
        if who.smallest_cluster is None:
            own = settings.scenario.partition not in PARTITIONS.built_in
            remedy = "; where it is your own and knows the clusters, define `cluster_sizes` in it" if own else ""
            raise SettingsError(
                f"{self.name} is told the true clusters, but the partition of these data has no clusters: omit "
                f"{self.name}, or use a partition that has some, such as rotation or groups{remedy}"
            )
        if who.smallest_cluster < 2:
            raise SettingsError(
                f"{self.name} with {who.num_peers} peers leaves some alone in their cluster: "
                f"add peers or omit {self.name}"
            )

    def reachable(self, me: PeerId, others: Sequence[PeerId], alike: Sequence[PeerId]) -> Sequence[PeerId]:
        return alike


class OraclePlus(Oracle):
    """The same with merged or fine-tuned models (docs/decisions/0040)."""

    name = "oracle+"
    about = "oracle that tests merged or fine-tuned models, whichever its validation data prefer"
    colours = ("#3d7a1f", "#9ccc5f")
    plus_of = "oracle"

    def resolve(self, settings: Settings) -> Settings:
        return settings.replace({"validated": "either"})
