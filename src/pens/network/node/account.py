# SPDX-License-Identifier: Apache-2.0
"""What a node tells of itself: lines in the log, its status for those who watch it, and result.json."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from pens.engine.devices import peak_memory_bytes
from pens.learning.curves import UpdateRecord
from pens.measuring.records import undone_words
from pens.measuring.trust import Dropped, TrustRecord, dropped_words, trust_of
from pens.network.members.agreement import fingerprint
from pens.network.node.parts import NodeParts
from pens.network.node.progress import Progress
from pens.network.node.status import Status
from pens.protocol.messages import PeerId

_MOST_DROPPED = 1000  # records of members that were dropped
_NAMED = 5  # members, in a line about many
_log = logging.getLogger("pens.network.node")


class Account:
    """Logs and sums up what a node does; it changes nothing."""

    def __init__(self, parts: NodeParts) -> None:
        self._parts = parts
        self._progress = Progress()
        self._undone_told = 0
        self._joined = False
        self.chosen: tuple[PeerId, ...] = ()
        """The neighbours that the log was last told."""

    # --- lines in the log ---------------------------------------------------------------------------------------------

    def log_resumed(self) -> None:
        """The node goes on where an earlier life ended."""
        self._undone_told = self.num_undone
        extra = {"phase": self._parts.peer.phase, "step": self._parts.learning.current.version}
        _log.info("goes on", extra=extra)

    def log_joined(self) -> None:
        """The peer knows other members: told once in each life."""
        others = self._parts.alive()
        if others and not self._joined:
            self._joined = True
            names = sorted(record.name for record in others)
            _log.info("joined", extra={"members": len(names), "names": names[:_NAMED]})

    def log_finished(self) -> None:
        """The peer has done its updates, or stopped early."""
        _log.info("finished", extra={"step": self._parts.learning.current.version, **self._accuracies()})

    def log_compared(self) -> None:
        """The control is trained to its end."""
        parts = self._parts
        assert parts.alone
        tested = {
            "accuracy": parts.learning.accuracy,
            "alone_accuracy": parts.alone.accuracy,
            "val_gain": self.val_gain,
            "gain": self._gain(parts.learning.accuracy, parts.alone.accuracy),
        }
        known = {self._key(name): round(value, 4) for name, value in tested.items() if value is not None}
        _log.info("compared with training alone", extra={**self._accuracies(), **known})

    def log_neighbours(self, neighbours: tuple[PeerId, ...], by: str) -> None:
        """The peer has other neighbours than before. `by`: how they became its neighbours."""
        named = self._parts.named
        if by == "distrust":
            _log.info("neighbours left", extra={"neighbours": named(neighbours)})
        elif by == "admission":
            new = sorted(set(neighbours) - set(self.chosen))
            _log.info("admitted", extra={"neighbours": named(new)})
        elif neighbours:
            _log.info("selected", extra={"neighbours": named(neighbours), "fallback": by == "fallback"})
        else:
            received = self._parts.counts.received
            _log.warning("too few models came to compare", extra={"received": received, "neighbours": []})
        self.chosen = neighbours

    def note_dropped(self, others: Sequence[PeerId]) -> None:
        """The peer takes nothing of these for a while."""
        parts = self._parts
        parts.dropped += [Dropped(parts.seconds, int(parts.peer.me), int(other)) for other in others]
        del parts.dropped[:-_MOST_DROPPED]
        _log.warning("dropped", extra={"members": parts.named(others), "why": "their models kept hurting"})

    def log_undone(self) -> None:
        """An update was undone since this was called last."""
        undone = self.num_undone
        if undone > self._undone_told:
            step, why = self._parts.learning.current.version, "the loss was not finite"
            _log.warning("update undone", extra={"step": step, "undone": undone, "why": why})
        self._undone_told = undone

    @property
    def num_undone(self) -> int:
        """Updates that were undone, because the loss was not a finite number."""
        return self._parts.learners.setbacks[self._parts.peer.me]

    @property
    def trust(self) -> TrustRecord | None:
        """How the models of others did."""
        parts = self._parts
        if parts.peer.plan.trust is None:
            return None
        return trust_of(parts.learners.by_peer.values(), tuple(parts.dropped))

    def log_progress(self) -> None:
        """How far the peer is: soon after each phase began, then more and more seldom."""
        parts = self._parts
        if parts.membership.me.finished or not self._progress.is_due(parts.peer.phase, parts.now):
            return
        members = len(parts.alive())
        if parts.peer.phase == "starting":
            about: dict[str, object] = {"trained": bool(parts.learning.payload), "wait_for": parts.rules.wait_for}
        else:
            done, most = parts.peer.progress
            about = {"samplings" if parts.peer.phase == "searching" else "updates": f"{done} of {most}"}
        extra = {"phase": parts.peer.phase, **about, "members": members, "received": parts.counts.received}
        _log.info("progress", extra={**extra, **self._accuracies()})

    def _accuracies(self) -> dict[str, float]:
        """The main metric on validation data, as far as it is known: of the kept model, and of those trained alone."""
        alone = self._parts.alone
        known = {
            "kept_val_accuracy": self._parts.learning.val_accuracy,
            "first_val_accuracy": self.first_val_accuracy,
            "alone_val_accuracy": alone.val_accuracy if alone else None,
        }
        return {self._key(name): round(value, 4) for name, value in known.items() if value is not None}

    @property
    def val_gain(self) -> float | None:
        """By how much the kept model is better on validation data than the one trained alone; None until known."""
        alone = self._parts.alone
        return self._gain(self._parts.learning.val_accuracy, alone.val_accuracy if alone else None)

    def _gain(self, kept: float | None, alone: float | None) -> float | None:
        """Above zero where the kept model is better, whichever direction that is."""
        if kept is None or alone is None:
            return None
        return kept - alone if self._parts.learning.measure.higher_is_better else alone - kept

    def _key(self, name: str) -> str:
        return self._parts.learning.measure.key(name)

    @property
    def first_val_accuracy(self) -> float | None:
        """The main metric after the first training, before any merge; None where there is no first training."""
        if not self._parts.peer.plan.train_first:
            return None
        curves = self._parts.learners.history.table()
        return float(curves[0, UpdateRecord._fields.index("val_accuracy")]) if len(curves) else None

    # --- the status, and result.json ----------------------------------------------------------------------------------

    def status(self) -> Status:
        """What the node is doing at this moment."""
        parts, alone = self._parts, self._parts.alone
        curves = parts.learners.history.table()
        everyone = parts.membership.members(parts.now, "alive", "suspect", "dropped", "left")
        return Status(
            name=parts.membership.me.name,
            phase=parts.peer.phase,
            updates=parts.peer.updates,
            version=parts.learning.current.version,
            done=parts.membership.me.finished,
            training=parts.times.in_progress,
            neighbours=tuple(parts.named(parts.peer.neighbours)),
            members={r.name: str(parts.membership.status(r.name, parts.now)) for r in everyone},
            val_accuracy=float(curves[-1, UpdateRecord._fields.index("val_accuracy")]) if len(curves) else None,
            val_loss=float(curves[-1, UpdateRecord._fields.index("val_loss")]) if len(curves) else None,
            last_update=parts.times.last_update,
            training_s=parts.times.total_s,
            accuracy=parts.learning.accuracy,
            counts=replace(parts.counts),
            merged=parts.learners.by_peer[parts.peer.me].merges.total(),
            scored=self._num_scored(),
            first_val_accuracy=self.first_val_accuracy,
            kept_val_accuracy=parts.learning.val_accuracy,
            alone_val_accuracy=alone.val_accuracy if alone else None,
            val_gain=self.val_gain,
            progress=parts.peer.progress,
            misfits=parts.misfits.among(r.name for r in parts.alive()),
            by_terms=frozenset(r.name for r in parts.alive() if parts.misfits.by_terms(r.name)),
            fingerprint=fingerprint(parts.terms),
            bytes_relayed=parts.transport.traffic.bytes_relayed,
            refusals=dict(parts.transport.traffic.refusals),
            due=parts.now + parts.rules.gossip_s,
            undone=self.num_undone,
            trust=self.trust,
            distrusted=tuple(parts.named(sorted(parts.peer.conduct.until))),
            metric=parts.learning.measure,
        )

    def result(self, final: bool) -> dict[str, Any]:
        """The content of result.json. `final`: the node exits cleanly."""
        parts, learners, me = self._parts, self._parts.learners, self._parts.peer.me
        selected = parts.peer.neighbours is not parts.reachable
        return {
            **asdict(parts.counts),
            "name": parts.membership.me.name,
            "final": final,
            "phase": parts.peer.phase,
            "updates": parts.learning.current.version,
            "done": parts.membership.me.finished,
            "stopped_early": learners.by_peer[me].has_stopped,
            "metric": asdict(parts.learning.measure),
            self._key("accuracy"): parts.learning.accuracy,
            "further": parts.learning.further,
            self._key("val_accuracy"): parts.learning.val_accuracy,
            self._key("first_val_accuracy"): self.first_val_accuracy,
            "alone": {self._key(name): of for name, of in asdict(parts.alone).items()} if parts.alone else None,
            "neighbours": sorted(parts.named(parts.peer.neighbours)) if selected else None,
            "merged": learners.by_peer[me].merges.total(),
            "scored": self._num_scored(),
            "bytes_sent": parts.counts.bytes_out,
            "seconds": parts.seconds,
            "lives": parts.past.lives,
            "peak_memory_bytes": peak_memory_bytes(learners.models.device),
            "undone": self.num_undone,
            "trust": self._trust_json(),
            "warnings": self._warnings(),
        }

    def _trust_json(self) -> dict[str, Any] | None:
        """By names, since numbers of members mean nothing to others."""
        trust = self.trust
        if trust is None:
            return None
        named = self._parts.named
        dropped = [[of.time, *named([PeerId(of.other)])] for of in trust.dropped]
        return {**trust.to_json(), "dropped": dropped}

    def _warnings(self) -> list[str]:
        undone, dropped = self.num_undone, len(self._parts.dropped)
        return [
            *([undone_words(undone)] if undone else []),
            *([dropped_words(dropped)] if dropped else []),
        ]

    def _num_scored(self) -> int:
        me = self._parts.peer.me
        learner = self._parts.learners.by_peer[me]
        return learner.scored + learner.num_asked(math.inf)
