# SPDX-License-Identifier: Apache-2.0
"""Federations, inboxes and members for tests of the network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pens.network.certificates import authority as authority_module
from pens.network.certificates.authority import Authority
from pens.network.certificates.credentials import Credentials, load_credentials
from pens.network.transport.grpc_transport import GrpcTransport, Limits
from pens.network.transport.interface import Address, MemberRecord, Parcel, Reception, Table

LOOPBACK = Address("127.0.0.1", 0)
EMPTY = Table()
QUICK = Limits(backoff_s=0.001, max_backoff_s=0.01, models_per_s=1e6, burst_models=10**6, gossip_per_s=1e6)


def make_federation(folder: Path, *names: str) -> Authority:
    authority = Authority(folder)
    authority.create()
    for name in names:
        authority.issue(name)
    return authority


def credentials(authority: Authority, name: str) -> Credentials:
    return load_credentials(authority.folder / "peers" / name)


def issue_expired(authority: Authority, name: str) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authority_module, "end_after", lambda days: datetime.now(UTC) - timedelta(days=1))
        return authority.issue(name).folder


@dataclass
class NotingInbox:
    """Takes what comes, notes it, and says what it was told to say."""

    models: list[tuple[str, Parcel]] = field(default_factory=list)
    tables: list[tuple[str, Table]] = field(default_factory=list)
    answer: Table = EMPTY
    will: Callable[[str, int], Reception] = lambda sender, size: Reception.TAKEN

    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        self.models.append((sender, parcel))
        return Reception.TAKEN

    async def gossip(self, sender: str, table: Table) -> Table:
        self.tables.append((sender, table))
        return self.answer

    def wants(self, sender: str, size: int) -> Reception:
        return self.will(sender, size)


@dataclass
class RunningMember:
    transport: GrpcTransport
    inbox: NotingInbox
    record: MemberRecord
    own: Credentials

    @property
    def address(self) -> Address:
        return self.record.address


@asynccontextmanager
async def running(
    authority: Authority, *names: str, limits: Limits = QUICK, listen: Address = LOOPBACK
) -> AsyncIterator[list[RunningMember]]:
    """Members that listen while the block lasts."""
    async with AsyncExitStack() as stack:
        members = []
        for name in names:
            own, inbox = credentials(authority, name), NotingInbox()
            transport = GrpcTransport(own, listen, limits)
            address = await transport.start(inbox)
            stack.push_async_callback(transport.stop, 0)
            members.append(RunningMember(transport, inbox, MemberRecord(name, address, 0, 0, signature=b"any"), own))
        yield members
