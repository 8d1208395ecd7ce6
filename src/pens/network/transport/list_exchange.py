# SPDX-License-Identifier: Apache-2.0
"""Passes newer revocation lists from member to member, so that a list that one of them got reaches all.

Every so often, a member that calls another one for gossip also says which lists it wants, and receives those that are
newer. Where the other's are older, it sends its own in a second call. So it is enough that either of two members can
call the other. Gossip draws evenly whom it calls, so that a list reaches n members within some log2(n) such calls of
each.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from pens.network.certificates.credentials import Credentials
from pens.network.transport.wire import decode_lists, encode_lists

_log = logging.getLogger("pens.network")


class ListExchange:
    """The revocation lists of one member, as it passes them on."""

    def __init__(self, credentials: Credentials, every_s: float, clock: Callable[[], float]) -> None:
        self._credentials, self._every_s, self._clock = credentials, every_s, clock
        self._next = clock()

    def is_due(self) -> bool:
        """Whether to ask another member now; the next time is some seconds later."""
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + self._every_s
        return True

    def put_off(self) -> None:
        """Ask the next member in place of one that was not there."""
        self._next = self._clock()

    async def ask(self, member: str, call: Callable[[bytes], Awaitable[bytes]]) -> None:
        """Exchange lists with a member. `call`: sends it a request, and returns its answer."""
        own = self._credentials
        wanted, newer = decode_lists(await call(encode_lists(own.wanted_lists(), [])))
        self._take(newer, member)
        if missing := own.lists.newer(wanted):
            await call(encode_lists(own.wanted_lists(), missing))

    def answer(self, request: bytes, member: str) -> bytes:
        """Answer a member's request. CertificateError if it sent a list that is not genuine."""
        wanted, sent = decode_lists(request)
        self._take(sent, member)
        return encode_lists(self._credentials.wanted_lists(), self._credentials.lists.newer(wanted))

    def _take(self, lists: Sequence[bytes], member: str) -> None:
        for der in lists:
            signed = self._credentials.receive_list(der, f"list from {member}")
            if signed is not None:
                extra = {"member": member, "number": signed.number, "revoked": len(signed.serials)}
                _log.info("newer revocation list", extra={**extra, "until": f"{signed.ends:%Y-%m-%d}"})
