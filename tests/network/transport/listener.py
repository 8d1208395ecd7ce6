# SPDX-License-Identifier: Apache-2.0
"""A member as a process of its own: prints its port, then what reaches its inbox; ends when its input does."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from pens.network.transport.grpc_core import native_log_settings

os.environ.update(native_log_settings())

from pens.network.certificates.credentials import load_credentials
from pens.network.transport.grpc_transport import GrpcTransport, Limits
from pens.network.transport.interface import Address, Parcel, Reception, Table


class PrintingInbox:
    async def take_model(self, sender: str, parcel: Parcel) -> Reception:
        print("model", sender, flush=True)
        return Reception.TAKEN

    async def gossip(self, sender: str, table: Table) -> Table:
        print("gossip", sender, flush=True)
        return Table()

    def wants(self, sender: str, size: int) -> Reception:
        print("wants", sender, flush=True)
        return Reception.TAKEN


async def main() -> None:
    transport = GrpcTransport(load_credentials(Path(sys.argv[1])), Address("127.0.0.1", 0), Limits())
    print((await transport.start(PrintingInbox())).port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await transport.stop(0)


if __name__ == "__main__":
    asyncio.run(main())
