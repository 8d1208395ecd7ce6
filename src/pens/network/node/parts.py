# SPDX-License-Identifier: Apache-2.0
"""What the parts of one node share: its peer, its models, the other members, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pens.learning.learners import Learners
from pens.measuring.trust import Dropped
from pens.network.members.membership import Membership
from pens.network.members.misfits import Misfits, Occasions
from pens.network.members.reachable import Reachable
from pens.network.node.audit import Audit
from pens.network.node.control import AloneControl
from pens.network.node.learning import Learning
from pens.network.node.past import Past
from pens.network.node.status import JobTimes, PeerCounts
from pens.network.node.versions import Versions
from pens.network.transport.interface import MemberRecord, Transport
from pens.network.transport.terms import Terms
from pens.protocol.messages import PeerId
from pens.protocol.peer import Peer


@dataclass(frozen=True)
class NodeRules:
    """The settings of a node that its peer's plan does not contain."""

    wait_for: int = 1
    """The node must know this many others before the first training ends."""
    linger_s: float | None = None
    """The node stops this long after all known members have finished; None: only when it is told to."""
    gossip_s: float = 1.0
    max_held: int = 256
    """So many received models may wait to be used; with more of them, senders are told BUSY."""
    outgoing: int = 2
    """So many models may wait to be sent to one member."""


@dataclass
class NodeParts:
    """What a node, its exchange of models, its job queue and its account work on together."""

    peer: Peer
    reachable: Reachable
    learning: Learning
    membership: Membership
    transport: Transport
    number: Callable[[str], PeerId]
    """The number of a member, from its name."""
    rules: NodeRules
    terms: Terms = field(default_factory=Terms)
    """What this member says of itself before models are exchanged."""
    counts: PeerCounts = field(default_factory=PeerCounts)
    past: Past = field(default_factory=Past)
    times: JobTimes = field(default_factory=JobTimes)
    audit: Audit = field(default_factory=Audit)
    misfits: Misfits = field(default_factory=Misfits)
    occasions: Occasions = field(default_factory=Occasions)
    versions: Versions = field(default_factory=Versions)
    dropped: list[Dropped] = field(default_factory=list)
    """Members that the peer dropped, because their models kept hurting; times are seconds of all lives."""
    names: dict[PeerId, str] = field(default_factory=dict)
    """Names of members, by number."""
    alone: AloneControl | None = None
    """How good the control is; None until it is trained to its end."""
    started: float = 0.0
    """When this life began, on the event loop's clock."""
    closing: bool = False
    """The node is about to end: no further job begins, and no model is taken."""

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def seconds(self) -> float:
        """How long the peer has lived, in this life and in earlier ones."""
        return self.past.seconds + self.now - self.started

    @property
    def learners(self) -> Learners:
        return self.learning.learners

    def alive(self) -> list[MemberRecord]:
        """The other members in view that are there."""
        return self.membership.members(self.now, "alive")

    def named(self, peers: Sequence[PeerId]) -> list[str]:
        """The names of peers, as far as they are known, otherwise their numbers."""
        return [self.names.get(peer, str(peer)) for peer in peers]
