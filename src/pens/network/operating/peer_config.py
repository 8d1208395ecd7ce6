# SPDX-License-Identifier: Apache-2.0
"""The TOML file of one real peer, typed and checked: its name and addresses, its data, and all settings of pens.

    preset = "digits"                     # settings to start from, as for `pens run`

    [peer]
    name = "hospital-a"                   # as in its certificate
    listen = "0.0.0.0:7400"
    advertise = "a.example.org:7400"      # where others find it, if that is another address
    bootstrap = ["b.example.org:7400"]    # members to call first; any member will do
    certificates = "certs"                # the folder that `pens certs issue` made for it
    state = "state"

    [data]
    source = "mydata:load"                # module:function or file.py:function → pens.PeerData, or (train, val[, test])
    num_classes = 10                      # in the whole federation
    # or source = "mine.csv", "mine.parquet", "mine.npz", or a folder of images by class: this peer's own samples
    # or share = 3: what peer 3 of the settings' scenario holds, or peer 3 of a table of all peers that `source` names

    [training]                            # and any other section of the settings
    lr = 3e-3

Paths are relative to the file. A real peer follows the schedule `async`; `timing.interval` is in seconds, and the
other virtual times do not apply.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, field_validator

from pens.errors import SettingsError, suggest
from pens.experiment.defaults import PAPERS_METHOD
from pens.experiment.presets import preset
from pens.methods.method import ANY_NUMBER
from pens.methods.names import check_methods, check_networked, networked_method
from pens.network.transport.dialling import IpNetwork
from pens.network.transport.interface import Address
from pens.network.transport.outward import Ways, attached_address
from pens.settings.keys import flatten
from pens.settings.section import Count, NotNegative, Positive, Section
from pens.settings.toml import read_toml
from pens.settings.tree import Settings, problem

_READING = "how data are read"

Port = Annotated[int, Field(ge=0, le=65535)]


class PeerSection(Section):
    """Section [peer]: a peer's name, addresses and folders, and how it runs."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    listen: str = "0.0.0.0:7400"
    """HOST:PORT; port 0: any that is free."""
    advertise: str | None = None
    reachable: bool = True
    """false: no other member can open a connection to this one. Then it listens nowhere, and is sent models over
    connections that it opened itself (docs/decisions/0086)."""
    relay: bool = False
    """Carry bytes, which are encrypted between the two ends, to members that cannot be reached."""
    relay_mb_per_minute: Positive = 64.0
    """What is carried for two members at most."""
    proxy: str | None = None
    """http://HOST:PORT: the HTTP proxy through which this peer calls others."""
    bootstrap: tuple[str, ...] = ()
    certificates: Path = Path("certs")
    state: Path = Path("state")
    method: str = PAPERS_METHOD
    """The name of a method; or, in the file, the place of an own one: module:name or file.py:name."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The same for all peers of a federation; each draws from random streams that its own name selects."""
    model: str | None = None
    """module:function or file.py:Name that makes the network; None: the setting `net`."""
    device: str = "auto"
    threads: Annotated[int, Field(ge=0)] = 0
    """Threads for computing; 0: as many as PyTorch chooses."""
    wait_for: Annotated[int, Field(ge=0)] = 1
    """The peer waits after its first training until it knows this many others."""
    linger_s: NotNegative | None = None
    """The peer stops this long after all have finished; not set: only when told to, for peers that join later."""
    compare_alone: bool = True
    """When the peer has finished, train one more model on its own data alone, to tell what joining brought."""
    metrics_port: Port | None = None
    """Port of /healthz and /metrics, on this machine only; 0: any that is free; not set: none."""
    log: Literal["json", "text"] = "json"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    view: Annotated[int, Field(ge=8)] = 256
    """Members that this peer keeps track of and draws from: all of a smaller federation, a changing random sample of a
    larger one."""
    audit: bool = True
    """Keep an audit log in the state folder: who was sent which model, who was received, merged and refused, when."""
    audit_mb: Count = 16
    """The size at which a new file of it begins …"""
    audit_files: Count = 8
    """… and how many older files remain."""
    gossip_s: Positive = 1.0
    suspect_s: Positive = 8.0
    drop_s: Positive = 30.0
    max_held: Count = 256
    """The most received models that may wait to be used."""
    models_per_s: Positive = 10.0
    """Models that one sender may send, on average …"""
    burst_models: Count = 50
    """… and in a burst."""
    expires_soon_days: Positive = 7.0
    """So long before a certificate, an authority or a revocation list ends, /healthz says degraded."""
    list_grace_days: NotNegative | None = None
    """So long after the end of an authority's revocation list its members are still accepted; not set: for ever, and
    the log and /healthz tell of it."""
    mb_per_minute: Positive = 1024
    """Millions of bytes that one member may send, over all of its connections; further ones wait."""
    connections_of_host: Count = 64
    """Connections from one address over which no member has called yet: more where many members share an address."""
    networks: tuple[str, ...] = ()
    """The only networks in which members that others tell of are called, such as 203.0.113.0/24; none: all."""

    @field_validator("networks")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_network(text)
        return value

    @field_validator("proxy")
    @classmethod
    def _proxy(cls, value: str | None) -> str | None:
        if value is not None:
            if not value.startswith("http://"):
                raise ValueError(f"{value!r} is not a proxy: expected http://HOST:PORT, for instance http://proxy:3128")
            parse_address(value.removeprefix("http://").rpartition("@")[2])
        return value

    @property
    def ways(self) -> Ways:
        """How the peer reaches others, and is reached by them."""
        return Ways(self.reachable, self.relay, self.proxy)

    @property
    def own_address(self) -> Address:
        """What it tells others of where it is, before it knows its real port."""
        if not self.reachable:
            return attached_address(self.name)
        return parse_address(self.advertise or self.listen)

    @field_validator("listen", "advertise", "bootstrap")
    @classmethod
    def _addresses(cls, value: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
        for text in (value,) if isinstance(value, str) else value or ():
            parse_address(text)
        return value


class DataSection(Section):
    """Section [data]: the data that a peer holds."""

    source: str | None = None
    share: Annotated[int, Field(ge=0)] | None = None
    data_dir: Path | None = None
    num_classes: Annotated[int, Field(ge=2)] | None = None
    """Classes in the whole federation, the same at all peers. Needed for an own source where the network is one of
    pens', whose last layer has this many outputs."""


class PeerConfig(BaseModel):
    """Everything that a peer's file contains."""

    peer: PeerSection
    data: DataSection
    settings: Settings
    folder: Path
    """The folder of the file."""

    def path(self, path: Path) -> Path:
        """A path of the file, as seen from the working directory."""
        return self.folder / path


def read_peer_config(path: Path, bootstrap: tuple[str, ...] = (), state: Path | None = None) -> PeerConfig:
    """The content of a file, checked. `bootstrap`: members besides those in it; `state`: replaces that in it."""
    tree = read_toml(path)
    _divide_data(tree)
    peer, data = _section(tree, "peer", PeerSection), _section(tree, "data", DataSection)
    if reading := tree.pop(_READING, None):
        tree["data"] = reading
    method = networked_method(peer.method, path.parent)  # before the settings, which may have a section of its own
    peer = peer.model_copy(update={"method": method.name})
    if bootstrap:
        peer = _validated("peer", PeerSection, {**peer.model_dump(), "bootstrap": (*peer.bootstrap, *bootstrap)})
    if state:
        peer = peer.model_copy(update={"state": state.absolute()})
    config = PeerConfig(peer=peer, data=data, settings=_settings(tree, path.parent), folder=path.parent.absolute())
    _check(config, path)
    return config


def _divide_data(tree: dict[str, Any]) -> None:
    """Section [data] says what this peer holds, and, as in any file of settings, how own data are read. A share is one
    of all peers' data, which `source` names then."""
    section = tree.get("data")
    if not isinstance(section, Mapping):
        return
    mine = {key: value for key, value in section.items() if key in DataSection.model_fields}
    shared = {key: value for key, value in section.items() if key not in mine or key == "num_classes"}
    if "share" in mine and "source" in mine:
        shared["source"] = mine.pop("source")
    tree["data"], tree[_READING] = mine, shared


def _section(tree: dict[str, Any], name: str, kind: type[Any]) -> Any:
    values = tree.pop(name, {})
    if not isinstance(values, Mapping):
        raise SettingsError(f"{name} = {values!r}: expected a section [{name}]")
    for key in values:
        if key not in kind.model_fields:
            raise SettingsError(f"unknown setting '{name}.{key}'{suggest(key, kind.model_fields)}")
    return _validated(name, kind, values)


def _validated(name: str, kind: type[Any], values: Mapping[str, Any]) -> Any:
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        problems = [_complaint(name, dict(e)) for e in error.errors()]
        raise SettingsError("\n".join(dict.fromkeys(problems))) from None


def _complaint(section: str, error: Mapping[str, Any]) -> str:
    if error["type"] == "missing":
        return f"{section}.{error['loc'][0]} is not set: add it to section [{section}]"
    return f"{section}.{problem({**error, 'loc': error['loc'][:1]})}"


def _settings(tree: dict[str, Any], folder: Path) -> Settings:
    base = tree.pop("preset", None)
    values = dict(flatten(tree, folder))
    settings = preset(str(base)).settings if base else Settings()
    usual = {"pens.admit": True, "gossip.schedule": "async"}
    unsaid = {name: value for name, value in usual.items() if name.rpartition(".")[2] not in values}
    return settings.replace({**unsaid, **values})


def _check(config: PeerConfig, path: Path) -> None:
    settings, data = config.settings, config.data
    if (data.source is None) == (data.share is None):
        raise SettingsError(f"{path}: section [data] needs either `source` or `share`, and not both")
    if data.share is not None and data.share >= settings.scenario.peers and not settings.data.is_own:
        raise SettingsError(
            f"data.share = {data.share}, but the scenario has peers = {settings.scenario.peers}, numbered from 0"
        )
    check_networked(settings, config.peer.method)
    check_methods(settings, [config.peer.method], ANY_NUMBER)
    _check_ways(config.peer)
    if config.peer.wait_for > config.peer.view:
        raise SettingsError(
            f"peer.wait_for = {config.peer.wait_for}, but this peer keeps track of peer.view = {config.peer.view} "
            "members: lower wait_for, or raise view"
        )
    if not config.peer.suspect_s < config.peer.drop_s:
        raise SettingsError(
            f"peer.drop_s = {config.peer.drop_s:g} must be above peer.suspect_s = {config.peer.suspect_s:g}: raise it"
        )


def _check_ways(peer: PeerSection) -> None:
    for name in ("advertise", "relay"):
        if not peer.reachable and getattr(peer, name):
            raise SettingsError(
                f"peer.reachable = false, but peer.{name} = {getattr(peer, name)!r}, which needs others to reach this "
                f"peer: leave out one of the two"
            )
    if not peer.reachable and not peer.bootstrap:
        raise SettingsError(
            "peer.reachable = false, but peer.bootstrap is empty: nobody can call this peer, so name at least one "
            "member that it calls first"
        )


def parse_address(text: str) -> Address:
    """An address from a text such as `a.example.org:7400` or `[::1]:7400`."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address: expected HOST:PORT, for instance a.example.org:7400")
    return Address(host.strip("[]"), int(port))


def parse_network(text: str) -> IpNetwork:
    """A network from a text such as `203.0.113.0/24` or `2001:db8::/32`."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network: {error}; expected for instance 203.0.113.0/24") from None
