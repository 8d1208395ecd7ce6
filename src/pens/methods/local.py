# SPDX-License-Identifier: Apache-2.0
"""`local`: every peer trains alone (paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from pens.methods.method import Method
from pens.protocol.messages import PeerId


class Local(Method):
    """No peer reaches another."""

    name = "local"
    about = "every peer alone"
    colours = ("#6f6f6f", "#a9a9a9")
    merges = False
    keeps_moments = True

    def reachable(self, me: PeerId, others: Sequence[PeerId], alike: Sequence[PeerId]) -> Sequence[PeerId]:
        return ()
