# SPDX-License-Identifier: Apache-2.0
"""Models that a node receives and sends: its inbox, its outbox, and the answers to its models."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from torch import Tensor

from pens.errors import OtherNetwork, PayloadError
from pens.network.members.agreement import REMEDY as AGREE
from pens.network.members.agreement import Heard
from pens.network.members.gossiper import Gossiper
from pens.network.members.misfits import REMEDY
from pens.network.node.outbox import Outbox
from pens.network.node.parts import NodeParts
from pens.network.transport.codec import decode_note, encode_note
from pens.network.transport.interface import Parcel, Reception, Table, TransportError
from pens.protocol.messages import ModelRef, Note, PeerId, Received

_LARGE_PAYLOAD = 4 << 20  # bytes; such a payload is read beside the event loop
_log = logging.getLogger("pens.network.node")


class Exchange:
    """Receives models of other members, and sends this peer's. It is the `Inbox` that a node offers its transport."""

    def __init__(self, parts: NodeParts, gossiper: Gossiper, receive: Callable[[Received], None]) -> None:
        """`receive`: called with each model that was taken."""
        self._parts, self._gossiper, self._receive = parts, gossiper, receive
        find = parts.membership.find
        self._summed: tuple[bytes, str] | None = None
        self._outbox = Outbox(parts.transport, find, gossiper.greet, self._on_sent, parts.rules.outgoing)

    # --- models that others send (Inbox) ------------------------------------------------------------------------------

    def wants(self, sender: str, size: int) -> Reception:
        """Whether to receive a model of this many bytes."""
        parts = self._parts
        if sender == parts.membership.me.name:
            return Reception.REFUSED
        if why := parts.misfits.by_terms(sender):
            self._note_misfit(sender, why)
            return Reception.OTHER_NETWORK
        most = parts.learning.max_payload_bytes
        if size > most:
            self._note_misfit(sender, f"its model has {size} bytes, ours has at most {most}")
            return Reception.OTHER_NETWORK
        full = parts.closing or parts.learning.num_held >= parts.rules.max_held
        return Reception.BUSY if full else Reception.TAKEN

    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        """Check a model that came, and hold it for the peer."""
        verdict = self.wants(sender, len(parcel.payload))
        if verdict is not Reception.TAKEN:
            return verdict
        try:
            row, digest = await self._read(parcel.payload)
            note = decode_note(parcel.note)
        except OtherNetwork as error:
            self._note_misfit(sender, f"its model does not fit: {error}")
            return Reception.OTHER_NETWORK
        except PayloadError as error:
            self._parts.counts.malformed += 1
            self._parts.audit.note_refused(sender, "malformed", self._parts.now)
            if self._is_due("malformed", sender):
                _log.warning("model refused", extra={"member": sender, "reason": str(error)})
            return Reception.REFUSED
        if why := self._parts.versions.refusal(sender, self._incarnation(sender), parcel.version, parcel.payload):
            self._parts.counts.outdated += 1
            if self._is_due("version", sender):
                _log.warning("model refused", extra={"member": sender, "reason": why})
            return Reception.REFUSED
        self._parts.misfits.remove(sender)
        self._parts.audit.note("received", **_about(sender, parcel), sha256=digest)
        self._hold(sender, parcel, row, note)
        return Reception.TAKEN

    def _incarnation(self, sender: str) -> int:
        """How often a member was started, as far as this one knows."""
        record = self._parts.membership.find(sender)
        return record.incarnation if record else 0

    async def _read(self, payload: bytes) -> tuple[Tensor, str]:
        """A payload as a row of numbers, and its checksum for the audit log."""
        parts = self._parts

        def read() -> tuple[Tensor, str]:
            return parts.learning.read(payload), sha256(payload).hexdigest() if parts.audit.is_on else ""

        return await asyncio.to_thread(read) if len(payload) > _LARGE_PAYLOAD else read()

    def _hold(self, sender: str, parcel: Parcel, row: Tensor, note: Note) -> None:
        parts = self._parts
        owner = parts.number(sender)
        parts.names[owner] = sender
        parts.membership.heard(sender, parts.now)
        parts.membership.keep_sender(sender)
        parts.counts.received += 1
        parts.counts.bytes_in += len(parcel.payload)
        ref = ModelRef(owner, parcel.version)
        parts.learning.hold(ref, row)
        self._receive(Received(ref, parcel.answer, note))

    async def gossip(self, sender: str, table: Table) -> Table:
        """Take what a member tells of members, and answer likewise."""
        return self._gossiper.answer(sender, table)

    # --- models that this peer sends ----------------------------------------------------------------------------------

    def send(self, to: PeerId, answer: bool) -> None:
        """Send the current model to a peer, if there is one to send and the peer's name is known."""
        parts = self._parts
        payload = parts.learning.payload
        if payload is not None and to in parts.names:
            version, note = parts.learning.current.version, encode_note(parts.peer.note())
            self._outbox.put(parts.names[to], Parcel(version, payload, answer, note))

    def _on_sent(self, name: str, parcel: Parcel, outcome: Reception | TransportError) -> None:
        parts = self._parts
        if outcome is Reception.TAKEN:
            parts.counts.sent += 1
            parts.counts.bytes_out += len(parcel.payload)
            if parts.audit.is_on:
                parts.audit.note("sent", **_about(name, parcel), sha256=self._checksum(parcel.payload))
            parts.membership.heard(name, parts.now)
            parts.misfits.remove(name)
            return
        parts.counts.failed += 1
        if outcome is Reception.OTHER_NETWORK:
            self._note_misfit(name, parts.misfits.by_terms(name) or "it cannot use the model that we sent")
        if outcome is Reception.REFUSED and self._is_due("refuses", name):
            _log.warning("member refuses our models", extra={"member": name})
        if isinstance(outcome, TransportError):
            if parts.membership.status(name, parts.now) == "alive":
                _log.info("member cannot be reached", extra={"member": name, "why": str(outcome)})
            parts.membership.failed(name, parts.now)

    def _checksum(self, payload: bytes) -> str:
        """Computed once for each model that is sent, however many members it goes to."""
        if self._summed is None or self._summed[0] is not payload:
            self._summed = payload, sha256(payload).hexdigest()
        return self._summed[1]

    async def close(self) -> None:
        """Stop sending."""
        await self._outbox.close()

    # --- members with another network ---------------------------------------------------------------------------------

    def hear_terms(self, heard: Heard) -> None:
        """Record whether a member fits by its terms, and log why not, or what else differs, once an hour."""
        member = heard.member
        if not heard.trial:
            self._parts.misfits.hear(member, heard.why)
        if heard.why and self._is_due("trial" if heard.trial else "terms", member):
            about = {"member": member, "why": heard.why, "remedy": AGREE, "only_compares": heard.trial}
            _log.warning("member does not fit", extra=about)
        elif heard.difference and not heard.trial and self._is_due("difference", member):
            _log.info("member has other settings", extra={"member": member, "difference": heard.difference})

    def _note_misfit(self, member: str, why: str) -> None:
        """Record that this peer and a member cannot use each other's models: counted each time, logged once an hour."""
        self._parts.counts.other_network += 1
        if self._parts.misfits.by_terms(member):
            return
        self._parts.audit.note_refused(member, "another network", self._parts.now)
        self._parts.misfits.add(member, why)
        if self._is_due("network", member):
            _log.warning("member has another network", extra={"member": member, "why": why, "remedy": REMEDY})

    def _is_due(self, what: str, member: str) -> bool:
        return self._parts.occasions.is_due(what, member, self._parts.now)


def _about(member: str, parcel: Parcel) -> dict[str, Any]:
    """What the audit log says of a model that was exchanged."""
    return {"member": member, "version": parcel.version, "bytes": len(parcel.payload), "answer": parcel.answer}
