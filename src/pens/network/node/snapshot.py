# SPDX-License-Identifier: Apache-2.0
"""A node's state as plain data and tensors, from which a later life goes on."""

from __future__ import annotations

from dataclasses import asdict, astuple
from typing import Any

from torch import Tensor

from pens.measuring.trust import Dropped
from pens.network.node.account import Account
from pens.network.node.control import AloneControl
from pens.network.node.encoded_jobs import decode_job, encode_job
from pens.network.node.job_queue import JobQueue
from pens.network.node.parts import NodeParts
from pens.network.node.past import Past
from pens.network.node.status import PeerCounts
from pens.protocol.messages import PeerId
from pens.storage.checkpoint import encode_state


def take_snapshot(
    parts: NodeParts, queue: JobQueue, account: Account, wake_in: float | None
) -> tuple[bytes, dict[str, Tensor]]:
    """Everything about a node that changes, as it is at this moment; call it only between jobs.

    The plain data become JSON at once: they are written beside the event loop, which goes on changing them. `wake_in`:
    seconds until the next `Wake`.
    """
    data, tensors = parts.learning.state()
    state = {
        "learning": data,
        "peer": parts.peer.state(),
        "jobs": [encode_job(job) for job in queue.jobs],
        "due": queue.due,
        "chosen": list(account.chosen),
        "names": [[peer, name] for peer, name in parts.names.items()],
        "counts": asdict(parts.counts),
        "past": {**asdict(parts.past), "seconds": parts.seconds},
        "versions": parts.versions.state(),
        "dropped": [list(astuple(of)) for of in parts.dropped],
        "finished": parts.membership.me.finished,
        "alone": asdict(parts.alone) if parts.alone else None,
        "wake_in": wake_in,
    }
    return encode_state(state), tensors


def restore_snapshot(
    parts: NodeParts, queue: JobQueue, account: Account, state: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    """Go on from a snapshot, except for its "finished" and "wake_in", which the node restores itself."""
    parts.learning.restore(state["learning"], tensors)
    parts.peer.restore(state["peer"])
    queue.restore([decode_job(job) for job in state["jobs"]], state["due"])
    account.chosen = tuple(PeerId(peer) for peer in state["chosen"])
    parts.names = {PeerId(peer): name for peer, name in state["names"]}
    parts.counts, parts.past = PeerCounts(**state["counts"]), Past(**state["past"])
    parts.versions.restore(state.get("versions", []))
    parts.dropped = [Dropped(*of) for of in state.get("dropped", [])]
    parts.alone = AloneControl(**state["alone"]) if state.get("alone") else None
