# SPDX-License-Identifier: Apache-2.0
"""The data of many runs: each data set is read once, whichever runs need it."""

from __future__ import annotations

import json
from pathlib import Path

from pens.data.own_sources import OwnPeers, load_data
from pens.data.samples import Dataset
from pens.experiment.holdings import Holdings
from pens.methods.names import shared_values
from pens.partitions.partition import partition_of
from pens.settings.tree import Settings


class SharedData:
    """Data sets and own peers, by the settings that name them."""

    def __init__(self, data_dir: Path | None = None) -> None:
        self.data_dir = data_dir
        self._found: dict[str, Dataset | OwnPeers] = {}
        self._last: tuple[str, Holdings] | None = None

    def load(self, settings: Settings) -> None:
        """Read the data that these settings name, and check that they have enough samples."""
        found = self._load(settings)
        if isinstance(found, Dataset):
            partition_of(settings).check(settings, found)

    def holdings(self, settings: Settings) -> Holdings:
        """What peers hold by these settings. Runs that share all that decides it share the federations, too, as long as
        they come one after the other."""
        key = json.dumps(shared_values(settings))
        if self._last is None or self._last[0] != key:
            self._last = key, Holdings(settings, self._load(settings), self.data_dir)
        return self._last[1]

    def _load(self, settings: Settings) -> Dataset | OwnPeers:
        key = json.dumps([settings.data.model_dump(mode="json"), settings.model.task])
        if key not in self._found:
            self._found[key] = load_data(settings, self.data_dir)
        return self._found[key]
