# SPDX-License-Identifier: Apache-2.0
"""`small-world`: a ring with a few random shortcuts across it (Newman and Watts 1999).

Each peer reaches the two next to it. Shortcuts join random pairs, so that news needs few steps to reach everybody.
"""

from __future__ import annotations

import pens


class SmallWorldSettings(pens.Section):
    """The topology small-world."""

    title = "small-world"
    shortcuts: pens.Whole = 4
    """How many random pairs of peers are joined beside the ring."""


class SmallWorld(pens.Topology):
    """A ring and random shortcuts."""

    name = "small-world"
    about = "a ring, and random shortcuts across it"
    section = SmallWorldSettings

    def check(self, settings: pens.SettingsTree, num_peers: int) -> None:
        """Refuse more shortcuts than there are pairs that the ring leaves."""
        shortcuts, room = settings.section(SmallWorldSettings).shortcuts, num_peers * (num_peers - 3) // 2
        if shortcuts > max(0, room):
            raise pens.SettingsError(
                f"shortcuts = {shortcuts}, but a ring of {num_peers} peers leaves {max(0, room)} pairs: lower it"
            )

    def neighbours(self, num_peers: int, settings: pens.SettingsTree, seed: int) -> pens.Graph:
        """The ring, and pairs that are drawn among the others."""
        ring = {(peer, (peer + 1) % num_peers) for peer in range(num_peers)}
        others = [(a, b) for a in range(num_peers) for b in range(a) if not {(a, b), (b, a)} & ring]
        drawn = pens.rng.stream(seed, "topology", self.name).sample(
            others, settings.section(SmallWorldSettings).shortcuts
        )
        return pens.graph_of(num_peers, [*ring, *drawn])
