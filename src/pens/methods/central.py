# SPDX-License-Identifier: Apache-2.0
"""`central`: one model on everybody's data, in one place (paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pens.methods.method import Method
from pens.protocol.messages import PeerId
from pens.settings.schema import CentralSettings
from pens.settings.tree import RunSettings, Settings

if TYPE_CHECKING:
    from pens.data.scenarios import Held, PeerData


class Central(Method):
    """One learner holds the data of all peers (docs/decisions/0006)."""

    name = "central"
    about = "one model, trained on everybody's data in one place, which a federation wants to avoid"
    colours = ("#a0447f", "#de8fbe")
    section = CentralSettings
    merges = False
    pools_data = True
    keeps_moments = True

    def resolve(self, settings: Settings) -> Settings:
        """The section says for this method what other settings say for the others."""
        central = settings.central
        return settings.replace(
            {
                "rounds": central.central_rounds,
                "epochs": central.central_epochs,
                "batch_size": central.central_batch_size,
                "window": central.central_window,
                "patience": central.central_patience,
            }
        )

    def holders(self, federation: Held, settings: RunSettings) -> Sequence[PeerData]:
        from pens.data.scenarios import pooled

        return [pooled(federation, settings.central.central_val_share)]

    def data_sizes(self, federation: Held, settings: RunSettings) -> list[tuple[int, int]]:
        from pens.data.scenarios import pooled_sizes

        return [pooled_sizes(federation, settings.central.central_val_share)]

    def reachable(self, me: PeerId, others: Sequence[PeerId], alike: Sequence[PeerId]) -> Sequence[PeerId]:
        return ()
