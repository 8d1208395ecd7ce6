# SPDX-License-Identifier: Apache-2.0
"""`pens peer`: one real peer as a process, from reading its file to its exit."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import Counter
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import torch

from pens.errors import CertificateError, SettingsError
from pens.network.certificates.credentials import Credentials, MemberFiles, load_credentials
from pens.network.certificates.names import peer_id
from pens.network.members.agreement import REMEDY as AGREE
from pens.network.members.certified import CertificateNotary
from pens.network.members.misfits import REMEDY
from pens.network.node.learning import ThreadBench
from pens.network.node.node import Node
from pens.network.node.state import held
from pens.network.node.status import Status
from pens.network.operating.assembly import build_node, load_holding
from pens.network.operating.file_watch import FileWatch
from pens.network.operating.live_settings import apply_settings, follow_lists, limits_of
from pens.network.operating.logs import NativeLines, logging_to
from pens.network.operating.monitor import Monitor, Vitals
from pens.network.operating.peer_config import PeerConfig, parse_address, parse_network, read_peer_config
from pens.network.operating.peer_status import forget_monitor, name_monitor
from pens.network.operating.upkeep import Upkeep, follow_hangups
from pens.network.transport.dialling import Dialling
from pens.network.transport.grpc_transport import GrpcTransport, refusal_in
from pens.network.transport.interface import Reception
from pens.network.transport.tunnels import TunnelLimits
from pens.printable import printable
from pens.version import VERSION

_STUCK_S = 60.0
_NAMED = 5  # members, in a sentence about many
_BEFORE_SELECTION = ("starting", "searching", "selecting")
_log = logging.getLogger("pens.network.peer")


def run_peer(path: Path, bootstrap: tuple[str, ...] = (), state: Path | None = None) -> None:
    """Run the peer that a file describes. Returns when the peer was told to stop, or is needed no more."""
    watched = FileWatch([path])  # before it is read, so that no change is missed
    config = read_peer_config(path, bootstrap, state)
    if config.peer.threads:
        torch.set_num_threads(config.peer.threads)
    folder = config.path(config.peer.state)
    _check_certificates(config)  # before there is a folder
    with held(folder):
        credentials = credentials_of(config, memory=folder / "revoked.pem")
        upkeep = Upkeep(credentials, config, lambda: read_peer_config(path, bootstrap, state), watched)
        _log_and_live(config, upkeep)


def credentials_of(config: PeerConfig, memory: Path | None = None) -> Credentials:
    """The credentials of the peer that a file describes. `memory`: as for `load_credentials`."""
    _check_certificates(config)
    credentials = load_credentials(config.path(config.peer.certificates), memory=memory)
    if credentials.identity.name != config.peer.name:
        raise SettingsError(
            f"peer.name = {config.peer.name!r}, but the certificate is that of {credentials.identity.name!r}: "
            "correct one of peer.name and peer.certificates"
        )
    follow_lists(config.peer, credentials)
    return credentials


def _check_certificates(config: PeerConfig) -> None:
    """Raise an error that tells which of a member's files are missing, the setting of their folder, and the remedy."""
    folder, name = config.path(config.peer.certificates), config.peer.name
    files = MemberFiles(folder)
    missing = [
        path.name for path in (files.certificate, files.key, files.authority, files.revoked) if not path.exists()
    ]
    if missing:
        raise CertificateError(
            f"peer.certificates = {str(config.peer.certificates)!r}: there is no {', '.join(missing)} in {folder}. "
            f"Make a request with `pens certs request {name} --dir {folder}`, and `pens certs install` the answer; or "
            f"`pens certs issue {name}` on the authority's machine makes these files, in certs/peers/{name}: carry "
            "them here, or set peer.certificates to the folder that holds them"
        )


def _log_and_live(config: PeerConfig, upkeep: Upkeep) -> None:
    limits = limits_of(config.peer)
    transport = GrpcTransport(
        upkeep.credentials,
        parse_address(config.peer.listen),
        limits,
        dialling=dialling_of(config),
        ways=config.peer.ways,
        tunnel_limits=TunnelLimits(bytes_per_minute=config.peer.relay_mb_per_minute * 1e6),
    )

    def handshake_refusal(line: str) -> str | None:
        why = refusal_in(line)
        transport.traffic.refusals["handshake"] += why is not None
        return why

    with logging_to(
        form=config.peer.log, level=config.peer.log_level, native=NativeLines(handshake_refusal), limits=limits
    ):
        _log.info("starts", extra={"peer": config.peer.name, "version": VERSION})
        asyncio.run(_live(config, transport, upkeep))
        _log.info("ends", extra={"peer": config.peer.name})


def dialling_of(config: PeerConfig) -> Dialling:
    """Which addresses the peer calls."""
    about = config.peer
    bootstrap = [parse_address(text) for text in about.bootstrap]
    own = about.own_address if about.reachable else bootstrap[0]  # it has no address, but is where others are
    return Dialling(own.host, [parse_network(text) for text in about.networks], bootstrap)


async def _live(config: PeerConfig, transport: GrpcTransport, upkeep: Upkeep) -> None:
    stop = asyncio.Event()
    follow_hangups(upkeep, stop.set)
    holding, state = load_holding(config), config.path(config.peer.state)
    bench = ThreadBench()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _on_signal, stop, number)
    try:
        node = build_node(config, holding, transport, CertificateNotary(upkeep.credentials), peer_id, bench)
        upkeep.use = lambda changed: apply_settings(changed, node, transport, upkeep.credentials)
        with ExitStack() as stack:
            if config.peer.metrics_port is not None:
                monitor = Monitor(config.peer.metrics_port, lambda: vitals(node, upkeep))
                stack.enter_context(monitor)
                name_monitor(state, monitor.url)
                stack.callback(forget_monitor, state)
            looking = asyncio.create_task(upkeep.run())
            stack.callback(looking.cancel)
            await node.run(stop)
    finally:
        bench.close()


def _on_signal(stop: asyncio.Event, number: signal.Signals) -> None:
    """The first signal ends the peer cleanly, the second at once; the files on disk are complete either way."""
    _log.info("stops", extra={"signal": number.name})
    stop.set()
    asyncio.get_running_loop().remove_signal_handler(number)
    signal.signal(number, signal.SIG_DFL)


def vitals(node: Node, upkeep: Upkeep) -> Vitals:
    """What the monitor tells of a node; called from the monitor's threads."""
    status, today = node.status, datetime.now(UTC)
    if status is None:
        return Vitals(node.membership.me.name, VERSION, "joining", 0, expiry=upkeep.expiry(today))
    trouble = stuck_words(status, time.monotonic()) or upkeep.trouble(today)
    degraded = degraded_of(status)
    if degraded and set(status.misfits) >= _alive(status):
        trouble, degraded = trouble or f"the peer can use no other member's models: {degraded}", None
    degraded = "; ".join(filter(None, (degraded, upkeep.degraded(today)))) or None
    counts = status.counts
    return Vitals(
        name=status.name,
        version=VERSION,
        phase=status.phase,
        step=status.version,
        seconds_since_update=None if status.last_update is None else time.monotonic() - status.last_update,
        members=Counter(status.members.values()),
        neighbours=() if status.phase in _BEFORE_SELECTION else status.neighbours,
        done=status.done,
        undone=status.undone,
        verdicts=status.trust.verdicts if status.trust else {},
        distrusted=status.distrusted,
        models_in=counts.received,
        models_out=counts.sent,
        bytes_in=counts.bytes_in,
        bytes_out=counts.bytes_out,
        bytes_relayed=status.bytes_relayed,
        refusals=_refusals(status),
        val_accuracy=status.val_accuracy,
        val_loss=status.val_loss,
        first_val_accuracy=status.first_val_accuracy,
        kept_val_accuracy=status.kept_val_accuracy,
        alone_val_accuracy=status.alone_val_accuracy,
        val_gain=status.val_gain,
        progress=status.progress,
        training_s=status.training_s,
        trouble=trouble,
        degraded=degraded,
        misfits=len(status.misfits),
        why_apart={name: status.misfits[name] for name in sorted(status.misfits)[:_NAMED]},
        fingerprint=status.fingerprint,
        metric=status.metric,
        expiry=upkeep.expiry(today),
    )


def _refusals(status: Status) -> Counter[str]:
    counts = status.counts
    by_node = Counter(
        {
            "no neighbour": counts.refused,
            "malformed": counts.malformed,
            "version": counts.outdated,
            "not delivered": counts.failed,
            Reception.OTHER_NETWORK.value: counts.other_network,
        }
    )
    above = (Reception.REFUSED.value, Reception.OTHER_NETWORK.value)
    by_node.update({reason: n for reason, n in status.refusals.items() if reason not in above})
    return by_node


def _alive(status: Status) -> set[str]:
    return {name for name, state in status.members.items() if state == "alive"}


def degraded_of(status: Status) -> str | None:
    """Why the peer cannot use some members' models; None if it can use them all."""
    if not status.misfits:
        return None
    names = sorted(status.misfits)
    shown = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    why = printable(status.misfits[names[0]], 300)
    if names[0] in status.by_terms:
        return f"{shown}: does not fit ({why}): {AGREE}"
    return f"{shown}: another network than ours ({why}): {REMEDY}"


def stuck_words(status: Status, now: float) -> str | None:
    """That the event loop is stuck, and what to do; None if it is not. `now`: on the event loop's clock."""
    if now - status.due > _STUCK_S:
        return f"the event loop has been stuck for {now - status.due:.0f} s: restart the peer"
    return None
