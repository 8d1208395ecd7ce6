# SPDX-License-Identifier: Apache-2.0
"""What the peers of an experiment hold: a data set that the partition shares out, or own peers with data of their own.

Own peers are counted, and settings that count peers fit themselves to them, unless they were set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pens.data.doubts import doubts
from pens.data.leaks import leak
from pens.data.own_peers import is_table
from pens.data.own_sources import OwnPeers, load_data, rules_of
from pens.data.partition_files import Share
from pens.data.reading import Reading
from pens.data.samples import Dataset
from pens.data.scenarios import UNKNOWN, Federation, check_own_data
from pens.errors import SettingsError
from pens.hooks import is_ours
from pens.methods.method import Participants
from pens.methods.names import among, participants
from pens.partitions.partition import build_federation, check_repeats, partition_of
from pens.settings.tree import Settings
from pens.tasks.task import check_data, task_of


class Holdings:
    """The data of an experiment. Data sets that pens finds by name are read when they are needed."""

    def __init__(self, settings: Settings, own: object = None, data_dir: Path | None = None) -> None:
        """`own`: what a user gave from Python, in place of the setting `source`."""
        self._data_dir = data_dir
        self._is_own = own is not None or settings.data.is_own
        self._found: Dataset | OwnPeers | None = _given(own, settings)
        if self._found is None and self._is_own:
            self._found = load_data(settings, data_dir)
        self._federations: dict[int, Federation] = {}

    @property
    def peers(self) -> OwnPeers | None:
        """Own peers; None where a partition shares a data set out."""
        return self._found if isinstance(self._found, OwnPeers) else None

    def federation(self, settings: Settings, seed: int) -> Federation:
        """The federation of one seed, whose values are checked."""
        if seed not in self._federations:
            self._federations[seed] = self._built(settings, seed)
        return self._federations[seed]

    def _built(self, settings: Settings, seed: int) -> Federation:
        found = self._found
        if not isinstance(found, OwnPeers):
            return build_federation(self.dataset(settings), settings, seed)
        known = next(iter(self._federations.values()), None)
        if known is not None and isinstance(found.peers, Federation):
            return known
        federation = found.federation(seed)
        if known is None:
            check_own_data(federation)
            check_data(task_of(settings), federation)
        return federation

    def doubts(self, settings: Settings, seed: int) -> list[str]:
        """What is odd about the data where others divided them, but may be meant."""
        if self.peers is None and is_ours(type(partition_of(settings))):
            return []
        federation = self.federation(settings, seed)
        found = doubts(federation, task_of(settings).has_classes) if self.peers else []
        return [*found, *filter(None, [leak(federation)])]

    def dataset(self, settings: Settings) -> Dataset:
        """The data set that a partition shares out."""
        if self._found is None:
            self._found = load_data(settings, self._data_dir)
        assert isinstance(self._found, Dataset)
        if self._is_own and not self._federations:
            check_own_data(self._found)
        if not self._federations:
            check_data(task_of(settings), self._found)
        return self._found

    def check_repeats(self, settings: Settings, seed: int) -> None:
        """Refuse a partition that builds something else from the same seed."""
        if not self.peers:
            check_repeats(self.dataset(settings), settings, seed, self.federation(settings, seed))

    def changes(self, settings: Settings) -> str:
        """What the partition does to samples, which indices do not say, in a few words; empty: nothing."""
        return "" if self.peers else partition_of(settings).changes(settings)

    def forget_others(self, seeds: Sequence[int]) -> None:
        """Let go of the federations of other seeds."""
        self._federations = {seed: of for seed, of in self._federations.items() if seed in seeds}

    # --- settings -----------------------------------------------------------------------------------------------------

    def fitted(self, settings: Settings, said: Collection[str], seed: int) -> Settings:
        """Settings for so many own peers as there are. `said`: the keys that the user set, which stay."""
        if not self.peers:
            return settings
        num_peers = len(self.federation(settings, seed).peers)
        if num_peers < 2:
            raise SettingsError(f"the federation has {num_peers} peer: a federation needs at least two")
        fitting = {key: value for key, value in fitting_settings(settings, num_peers).items() if key not in said}
        return settings.replace({**fitting, "scenario.peers": num_peers})

    def participants(self, settings: Settings, seeds: tuple[int, ...]) -> Participants:
        """What is known of the peers, before any work is done."""
        if not self.peers:
            partition_of(settings).check(settings)
            return participants(settings, seeds)
        federation = self.federation(settings, seeds[0])
        return among(settings, len(federation.peers), federation.smallest_cluster, seeds)


def shares_of(settings: Settings, seed: int, data_dir: Path | None = None) -> dict[str, Share]:
    """Which samples of the source each peer holds and is tested on, by their numbers."""
    found = load_data(settings, data_dir, places=True)
    federation = (
        found.federation(seed) if isinstance(found, OwnPeers) else build_federation(found, settings, seed, indices=True)
    )
    shares = {}
    for number, peer in enumerate(federation.peers):
        held = {"train": peer.train, "val": peer.val, "test": federation.tests[federation.tested_on[number]]}
        cluster = UNKNOWN if federation.clusters is None else federation.clusters[number]
        name = None if cluster == UNKNOWN else federation.cluster_names[cluster]
        shares[federation.name_of(number)] = Share({part: of.x.reshape(-1) for part, of in held.items()}, name)
    return shares


def _given(own: object, settings: Settings) -> Dataset | OwnPeers | None:
    """What a user gave from Python. Peers that are not yet a federation are read as these settings say."""
    if own is None or isinstance(own, Dataset | OwnPeers):
        return own
    if isinstance(own, Federation):
        return OwnPeers(own, Reading())
    if isinstance(own, Mapping | list) or is_table(own):
        return OwnPeers(own, rules_of(settings).reading)
    raise SettingsError(
        f"data is a {type(own).__name__}: pass a pens.Dataset or a pens.Federation (pens.Federation.of)"
    )


def fitting_settings(settings: Settings, num_peers: int) -> dict[str, int]:
    """How many models peers wait for, compare and choose among so many peers, where the user does not say it: at most
    as many as in these settings, and about half of the others."""
    others = num_peers - 1
    n_sampled = min(settings.pens.n_sampled, others, max(2, round(0.6 * others)))
    return {
        "gossip.n_peers": min(settings.gossip.n_peers, max(1, others // 2)),
        "pens.n_sampled": n_sampled,
        "pens.m": min(settings.pens.m, max(1, n_sampled // 3)),
    }


def _value(settings: Settings, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(getattr(settings, section), name)


def fitted_words(before: Settings, after: Settings) -> str:
    """Which settings were fitted to the number of peers, in words; empty where none was."""
    names = {"n_peers": "gossip", "n_sampled": "pens", "m": "pens"}
    pairs = {name: (_value(before, f"{of}.{name}"), _value(after, f"{of}.{name}")) for name, of in names.items()}
    changed = [f"{name} = {value}" for name, (old, value) in pairs.items() if old != value]
    return f"fitted to {after.scenario.peers} peers: {', '.join(changed)}" if changed else ""
