# SPDX-License-Identifier: Apache-2.0
"""What a method is: everything that the rest of pens asks when it runs, checks, stores or reports one.

A method of your own is a subclass with a name, which overrides what it does otherwise. As it stands, `Method` is
gossip with random others (Algorithm 1 of the paper):

    class Next(Method):
        name = "next"
        about = "gossip with the next peer by number"

        def resolve(self, settings):
            return settings.replace({"n_peers": 1, "accept": "anyone"})

        def reachable(self, me, others, alike):
            return [next((peer for peer in others if peer > me), others[0])]

`pens run digits --methods my_file.py:Next` runs it. Settings arrive as `RunSettings`: what `resolve` made of the
experiment's. Nothing here needs tensors, so that `pens methods` and a mistyped setting are answered at once: import
what computes inside the functions that need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from pens.errors import SettingsError
from pens.protocol.messages import PeerId
from pens.protocol.plan import Plan
from pens.protocol.policies import SelectionRule
from pens.settings.section import Section
from pens.settings.space import Dimension
from pens.settings.tree import RunSettings, Settings

if TYPE_CHECKING:
    from pens.data.scenarios import Held, PeerData
    from pens.learning.rules import LearningRules

NEUTRAL = ("#6b5d52", "#b8aaa0")
"""The colours of a method that names none: on a light page, and on a dark one."""


@dataclass(frozen=True)
class Participants:
    """What is known of the peers before a run."""

    num_peers: int
    smallest_cluster: int | None
    """How many peers the smallest cluster has; None where nobody knows the clusters."""
    fewest_reachable: int | None = None
    """How many others the peer with the fewest neighbours in the topology can reach; None: all others."""
    lonely: int | None = None
    """A peer that the topology gives no neighbour, if there is one."""

    @property
    def num_others(self) -> int:
        """Whom each peer can hear, at the least."""
        return self.num_peers - 1 if self.fewest_reachable is None else self.fewest_reachable

    @property
    def remedy(self) -> str:
        """What gives each peer more others, in words."""
        return "add peers" if self.num_others == self.num_peers - 1 else "choose a topology with more neighbours"

    def check_enough(self, setting: str, wanted: int, can: str = "hear") -> None:
        """Refuse a setting by which a peer waits for, or sends to, more others than it can hear or reach."""
        if self.lonely is not None:
            raise SettingsError(
                f"{setting} = {wanted}, but peer {self.lonely} has no neighbour in the topology: give it at least "
                f"{wanted}, or choose another topology"
            )
        if wanted > self.num_others:
            raise SettingsError(
                f"{setting} = {wanted}, but each peer can {can} at most {self.num_others} others: "
                f"lower it or {self.remedy}"
            )


ANY_NUMBER = Participants(1 << 31, None)
"""Where nobody knows how many peers there will be: in a network, they come and go."""


class Method:
    """One method. All that it says is the same for all peers of a run."""

    name: str = ""
    """By which it is chosen, stored and shown: small letters, digits, + and -."""
    about: str = ""
    """What it is, in one line, for `pens methods` and a report's glossary."""
    colours: tuple[str, str] = NEUTRAL
    """In reports: on a light page, and on a dark one. As #rrggbb."""
    section: type[Section] | None = None
    """The section of the settings that only this method has, or several that share it."""

    space: Mapping[str, Dimension] = MappingProxyType({})
    """The settings that `pens tune` varies for it beside the learning rate, each with its range
    (`pens.settings.space`)."""

    selects: bool = False
    """Whether peers select their neighbours in a first step, by comparing models."""
    merges: bool = True
    """Whether peers merge models of others."""
    pools_data: bool = False
    """Whether the data of all peers are in one place, where one learner trains on them. Its model is tested on the
    test data of each cluster."""
    told_clusters: bool = False
    """Whether peers are told the true clusters: an upper bound, which no real peer can reach."""
    in_step: bool = False
    """Whether all peers exchange models at the same moments: then the schedule is `rounds`, from one snapshot."""
    scores: bool = False
    """Whether its peers ask for the losses of received models, so that whole models have to travel. Otherwise the
    parts that are merged do (`merge_only`), and such a question is refused where that is not everything. Distances
    (`pens.Distances`) are those of the merged parts."""
    says_weights: bool = False
    """Whether its peers say how much each model counts in every merge (`Update.weights`). A merge rule that would
    ignore that is refused before a run; without this, at the first such update."""
    num_servers: int = 0
    """Participants without data, which every peer can reach, and which reach every peer. Their numbers follow those of
    the peers. They merge what they are sent (`update` with epochs=0), and neither train nor validate. Where it is a
    setting how many there are, `servers` says it, and this is any number but 0."""
    needs_batch_norm: bool = False
    """Whether it is for networks with batch normalisation alone: others are refused before a run."""
    networked: bool = False
    """Whether real peers can follow it over a network (`pens peer`, `pens up`)."""
    keeps_moments: bool = False
    """Whether an optimizer goes on from update to update; else it begins anew after each merge."""
    plus_of: str | None = None
    """The method of which this one is a variant that may test its merged models, too."""
    is_baseline: bool = False
    """Whether reports compare learning curves and costs of other methods with this one's."""

    @property
    def attainable(self) -> bool:
        """Whether peers need nothing that they do not have: neither the true clusters nor each other's data."""
        return not self.told_clusters and not self.pools_data

    @property
    def trains_alone(self) -> bool:
        """Whether each peer trains without others: what others gain is told in comparison."""
        return not self.merges and not self.pools_data

    def resolve(self, settings: Settings) -> Settings:
        """What the method makes of an experiment's settings. It must not change settings of the data, the network and
        the engine ([scenario], the partition's section, `net`, [engine]): all methods of an experiment share them."""
        return settings

    def check(self, settings: RunSettings, who: Participants) -> None:
        """Refuse settings that cannot work, before anything is written or computed: raise `SettingsError`."""

    def segments(self, settings: RunSettings) -> Sequence[str]:
        """The beginnings of the names of parameters for which its peers say weights of their own
        (`Update.segment_weights`), as far as they are known before a run: that there are such parameters is checked
        then, and that the merge rule heeds such weights. Others are checked in the first update that names them."""
        return ()

    def holders(self, federation: Held, settings: RunSettings) -> Sequence[PeerData]:
        """Whose data are trained on: one for each learner."""
        return federation.peers

    def data_sizes(self, federation: Held, settings: RunSettings) -> list[tuple[int, int]]:
        """Training and validation samples of each learner."""
        return [(len(data.train), len(data.val)) for data in self.holders(federation, settings)]

    def num_learners(self, num_peers: int) -> int:
        """How many models are trained."""
        return 1 if self.pools_data else num_peers

    def servers(self, settings: RunSettings) -> int:
        """How many servers there are."""
        return self.num_servers

    def reachable(self, me: PeerId, others: Sequence[PeerId], alike: Sequence[PeerId]) -> Sequence[PeerId]:
        """Whom a peer may talk to, in ascending order. `others`: all whom it could reach, its neighbours in the
        topology; `alike`: those of them that are of its own cluster, none where nobody knows the clusters.

        In the schedule `async` models are pushed, and a peer accepts only those of peers that it can reach itself. A
        method where one peer reaches another that does not reach it sets accept = anyone in `resolve`."""
        return others

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        """What a peer that holds so many training and validation samples is told to do (paper, section 4.1).
        `num_peers`: how many peers there are for it, itself and all whom the topology lets it reach."""
        gossip, timing = settings.gossip, settings.timing
        return Plan(
            pace="pull" if gossip.schedule == "rounds" else "push",
            rounds=gossip.rounds,
            n_peers=gossip.n_peers,
            epochs=settings.training.epochs,
            search=None,
            accept_anyone=gossip.accept == "anyone",
            interval=timing.interval,
            jitter=timing.jitter,
            give_up=timing.give_up,
            train_first=settings.training.train_first,
        )

    def server_plan(self, settings: RunSettings, num_peers: int) -> Plan:
        """What a server is told to do, where there are any: at least, which behaviours it has."""
        return self.plan(settings, 0, 0, num_peers)

    def learning(self, settings: RunSettings, seed: int) -> LearningRules:
        """What all peers of a run have in common when they compute."""
        from pens.engine.optimizers import Recipe
        from pens.learning.rules import LearningRules
        from pens.merging.rule import chosen
        from pens.tasks.task import task_of

        training, pens = settings.training, settings.pens
        return LearningRules(
            recipe=Recipe(
                training.optimizer, training.lr, training.momentum, training.weight_decay, training.batch_size
            ),
            stopping=settings.stopping,
            own_in_merge=settings.gossip.own_in_merge,
            seed=seed,
            score_on=pens.score_on,
            score=pens.score,
            counts_heights=pens.neighbours_by == "levels",
            score_samples=pens.score_samples,
            max_batch=settings.engine.max_batch,
            scores=self.scores or (self.selects and (pens.score in ("loss", "accuracy") or pens.admit)),
            common_start=settings.model.init == "common",
            wire=settings.gossip.wire,
            merging=chosen(settings),
            optimizer_remembers=self.keeps_moments,
            higher_is_better=task_of(settings).measure.higher_is_better,
        )

    def selection(self, settings: RunSettings, num_peers: int) -> SelectionRule | None:
        """What makes a neighbour at the end of step 1; None where there is no such step."""
        return None


class Absent(Method):
    """Stands for the method of a finished run that is not installed here: its name, and nothing else is known."""

    about = "a method that is not installed here, so that only its name is known"

    def __init__(self, name: str) -> None:
        self.name = name
