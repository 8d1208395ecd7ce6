# SPDX-License-Identifier: Apache-2.0
"""Settings that change while a peer runs: which can, and what each changes.

What a peer learns, with whom it agreed on it, and where it listens and writes stay as they were at the start. What says
how long it waits, how much it takes, whom it calls first and what it tells can change.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from pens.network.certificates.credentials import Credentials
from pens.network.node.node import Node
from pens.network.operating.peer_config import PeerConfig, PeerSection, parse_address
from pens.network.transport.grpc_transport import GrpcTransport, Limits

CHANGEABLE = (
    "bootstrap",
    "burst_models",
    "drop_s",
    "expires_soon_days",
    "gossip_s",
    "linger_s",
    "list_grace_days",
    "log_level",
    "max_held",
    "models_per_s",
    "suspect_s",
    "wait_for",
)
"""Settings of section [peer]."""


@dataclass(frozen=True, slots=True)
class Changes:
    """How a file of settings differs from those in use."""

    applied: Mapping[str, Any]
    """What is in use from now on, by the name of the setting."""
    refused: Mapping[str, Any]
    """What remains as it is until a restart, by the name of the setting: the value that remains."""


def changes_between(old: PeerConfig, new: PeerConfig) -> Changes:
    """How two states of a file differ."""
    before, after = _flat(old), _flat(new)
    changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    live = {f"peer.{name}" for name in CHANGEABLE}
    return Changes(
        {name: after[name] for name in changed if name in live},
        {name: before.get(name) for name in changed if name not in live},
    )


def merged(old: PeerConfig, new: PeerConfig) -> PeerConfig:
    """The settings in use after a change: the old ones, with what can change from the new."""
    taken = {name: getattr(new.peer, name) for name in CHANGEABLE}
    return old.model_copy(update={"peer": old.peer.model_copy(update=taken)})


def limits_of(peer: PeerSection) -> Limits:
    """How much a peer takes of others."""
    return Limits(
        models_per_s=peer.models_per_s,
        burst_models=peer.burst_models,
        bytes_per_minute=int(1e6 * peer.mb_per_minute),
        connections_of_host=peer.connections_of_host,
    )


def follow_lists(peer: PeerSection, credentials: Credentials) -> None:
    """How long a certificate is accepted after the end of its authority's revocation list."""
    days = peer.list_grace_days
    credentials.list_grace = None if days is None else timedelta(days=days)


def apply_settings(config: PeerConfig, node: Node, transport: GrpcTransport, credentials: Credentials) -> None:
    """Use what can change of these settings from now on."""
    peer, parts = config.peer, node.parts
    logging.getLogger().setLevel(peer.log_level)
    follow_lists(peer, credentials)
    transport.change_limits(limits_of(peer))
    parts.rules = replace(
        parts.rules, wait_for=peer.wait_for, linger_s=peer.linger_s, gossip_s=peer.gossip_s, max_held=peer.max_held
    )
    parts.membership.change(
        [parse_address(text) for text in peer.bootstrap],
        gossip_s=peer.gossip_s,
        suspect_s=peer.suspect_s,
        drop_s=peer.drop_s,
    )


def _flat(config: PeerConfig) -> dict[str, Any]:
    """Settings by the names that they have in the file."""
    values = {**config.settings.model_dump(mode="json"), "peer": config.peer.model_dump(mode="json")}
    holding = {f"data.{name}": value for name, value in config.data.model_dump(mode="json").items()}
    return {**dict(_leaves("", values)), **holding}


def _leaves(prefix: str, tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
