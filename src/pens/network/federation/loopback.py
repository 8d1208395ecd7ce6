# SPDX-License-Identifier: Apache-2.0
"""A whole federation on one machine: settings that fit its size, how long it takes, and its files.

    DIR/certs/                    the authority, and each peer's certificate
    DIR/peer-3/                   a peer: its state and records (`pens.network.node.state`), and
    DIR/peer-3/config.toml        what `pens peer` is started with
    DIR/peer-3/log.jsonl          its log, of all its lives
    DIR/run/                      the records of all peers as one run directory, for `pens show` and `pens report`

A preset is made for more peers than a federation on a laptop has. Settings that do not fit are lowered, and the command
tells which: no peer can wait for more models than its cluster has other peers, and a comparison of nearly all peers
takes long, because models come one at a time and in random order.

Ports are below those that the system assigns to outgoing connections, so that a peer that was killed finds its own port
free when it comes back.
"""

from __future__ import annotations

import random
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pens.errors import RunDirError, SettingsError
from pens.experiment.holdings import Holdings, fitting_settings
from pens.experiment.presets import PRESETS, resolve_settings
from pens.methods.names import (
    among,
    check_methods,
    check_networked,
    find_method,
    networked_method,
    participants,
    written,
)
from pens.network.certificates.authority import Authority
from pens.network.certificates.names import allowed_names
from pens.network.operating.peer_config import read_peer_config
from pens.partitions.partition import data_words, partition_of
from pens.processors import usable_cores
from pens.protocol.behaviour import waits_for
from pens.settings.toml import toml_line, toml_section
from pens.settings.tree import MethodName, Settings

USUAL_MINUTES, USUAL_PEERS = 3.0, 8
PORTS = range(20_000, 32_000)
_SHOWN = 5  # peers with another name that are shown
_COMPARED = 0.7  # of the other peers, at most, must send a model before a sampling is complete
_SECONDS_PER_MODEL = 0.02  # of a core: to send, receive, check and keep one
_GIVEN_ELSEWHERE = {"peers": "--peers", "interval": "--interval", "schedule": "nothing: real peers are asynchronous"}


@dataclass(frozen=True)
class Member:
    """One peer of the federation: its folder, and the port of its monitor."""

    name: str
    folder: Path
    monitor_port: int

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"


@dataclass(frozen=True)
class LocalFederation:
    """The peers of a federation on this machine, and the settings that they share."""

    folder: Path
    settings: Settings
    method: MethodName
    seed: int
    members: tuple[Member, ...]

    @property
    def run_folder(self) -> Path:
        return self.folder / "run"


@dataclass(frozen=True)
class FederationRequest:
    """What a user asks `pens up` for."""

    settings: str
    """A preset, or a .toml file."""
    changes: Mapping[str, Any]
    peers: int | None
    """None: the usual number, or as many as have data in a table of own data."""
    method: str
    """The name of a method, or the place of an own one: module:name or file.py:name."""
    seed: int
    minutes: float | None = None
    """About how long the run shall take; None: the usual time."""
    interval: float | None = None
    """Seconds between two models that a peer sends; None: it follows from the minutes."""


def make_federation(folder: Path, request: FederationRequest) -> tuple[LocalFederation, str]:
    """Write a federation's files into a new or empty folder. Returns, too, which settings were lowered and which peers
    got another name, in words."""
    method = networked_method(request.method).name
    if request.minutes is not None and (request.interval is not None or not request.minutes > 0):
        raise SettingsError(f"--minutes {request.minutes:g}: it must be above 0, and --interval must not be set")
    base = resolve_settings(request.settings)
    wanted = base.replace(request.changes)
    own = Holdings(wanted).federation(wanted, request.seed) if wanted.data.is_own else None
    if own and request.peers not in (None, len(own.peers)):
        raise SettingsError(f"--peers {request.peers}, but {data_words(wanted)} has {len(own.peers)}: leave it out")
    peers = len(own.peers) if own else request.peers or USUAL_PEERS
    settings, lowered = fit_settings(base, request.changes, peers, method)
    seconds = 60 * (request.minutes or USUAL_MINUTES)
    interval = choose_interval(settings, method, seconds, num_cores()) if request.interval is None else request.interval
    settings = settings.replace({"timing.interval": interval})
    preset = (request.settings, base) if request.settings in PRESETS else None
    names = _member_names(own.peer_names) if own else []
    renamed = [f"{old} → {new}" for old, new in zip(own.peer_names if own else (), names, strict=False) if old != new]
    said = ", ".join([*([lowered] if lowered else []), *renamed[:_SHOWN], *(["…"] if renamed[_SHOWN:] else [])])
    return write_federation(folder, settings, method, request.seed, preset, names), said


def _member_names(names: Sequence[str]) -> list[str]:
    """Names that certificates and folders can have; some folders beside those of peers are taken."""
    return allowed_names([f"peer {name}" if name in ("certs", "run") else name for name in names])


def num_cores() -> int:
    """The cores that this process may use."""
    return usable_cores()


# --- settings ---------------------------------------------------------------------------------------------------------


def fit_settings(base: Settings, changes: Mapping[str, Any], peers: int, method: MethodName) -> tuple[Settings, str]:
    """Settings for this many real peers, and which were lowered, in words. Settings in `changes` are not lowered."""
    given = {name.rpartition(".")[2] for name in changes}
    for name in given & set(_GIVEN_ELSEWHERE):
        raise SettingsError(f"--set {name}: use {_GIVEN_ELSEWHERE[name]}")
    standard = {"scenario.peers": peers, "gossip.schedule": "async"}
    settings = base.replace({**standard, **({} if "admit" in given else {"pens.admit": True}), **changes})
    is_own = settings.data.is_own
    if not is_own:
        partition_of(settings).check(settings)
    check_networked(settings, method)
    before = {"n_peers": settings.gossip.n_peers, "m": settings.pens.m, "n_sampled": settings.pens.n_sampled}
    fits = fitting_settings(base, peers) if is_own else _fitting(settings, before)
    fitting = {name: value for key, value in fits.items() if (name := key.rpartition(".")[2]) not in given}
    settings = settings.replace(fitting)
    check_methods(settings, [method], among(settings, peers, None, (0,)) if is_own else participants(settings))
    words = [f"{name} {before[name]} → {value}" for name, value in fitting.items() if value != before[name]]
    return settings, ", ".join(words)


def _fitting(settings: Settings, wanted: Mapping[str, int]) -> dict[str, int]:
    of_its_cluster = max(1, _per_cluster(settings) - 1)
    m = min(wanted["m"], of_its_cluster)
    compared = max(m + 1, round(_COMPARED * (settings.scenario.peers - 1)))
    return {"n_peers": min(wanted["n_peers"], of_its_cluster), "m": m, "n_sampled": min(wanted["n_sampled"], compared)}


def _per_cluster(settings: Settings) -> int:
    """The size of the smallest cluster; all peers where clusters are not known."""
    smallest = partition_of(settings).smallest_cluster(settings)
    return settings.scenario.peers if smallest is None else smallest


def usual_waits(settings: Settings, method: MethodName) -> float:
    """How often a peer calls WAIT(Δ) until its last update, if it finds the peers of its cluster."""
    others, senders = settings.scenario.peers - 1, settings.scenario.peers - 1
    step1 = 0.0
    if find_method(method).selects:
        samplings = settings.pens.step1_rounds * settings.pens.step1_samplings
        step1 = samplings * waits_for(min(settings.pens.n_sampled, others), others)
        senders = max(1, _per_cluster(settings) - 1)
    return step1 + settings.gossip.rounds * waits_for(min(settings.gossip.n_peers, senders), senders)


def choose_interval(settings: Settings, method: MethodName, seconds: float, cores: int) -> float:
    """Δ such that a run takes about this many seconds, or longer where the cores could not keep up."""
    least = _SECONDS_PER_MODEL * settings.scenario.peers / cores
    return round(max(least, seconds / usual_waits(settings, method)), 3)


# --- files ------------------------------------------------------------------------------------------------------------


def write_federation(
    folder: Path,
    settings: Settings,
    method: MethodName,
    seed: int,
    preset: tuple[str, Settings] | None,
    names: Sequence[str] = (),
) -> LocalFederation:
    """Write certificates and configurations into a new or empty folder, all of them or none.

    `preset`: the name and settings of the preset from which the settings were made.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise RunDirError(
            f"{folder} is not empty: choose another --out, "
            f"or continue what is there with --resume {shlex.quote(str(folder))}"
        )
    count = settings.scenario.peers
    ports = free_ports(2 * count)
    made = _missing_folders(folder)
    try:
        return _write_files(folder, settings, method, seed, preset, ports, names or _numbered(count))
    except BaseException:
        for path in (made[-1],) if made else folder.iterdir():
            shutil.rmtree(path, ignore_errors=True)
        raise


def _missing_folders(folder: Path) -> list[Path]:
    """Of a folder and those that contain it, the ones that do not exist yet; the outermost last."""
    return [path for path in (folder, *folder.parents) if not path.exists()]


def _write_files(
    folder: Path,
    settings: Settings,
    method: MethodName,
    seed: int,
    preset: tuple[str, Settings] | None,
    ports: Sequence[int],
    names: Sequence[str],
) -> LocalFederation:
    authority = Authority(folder / "certs")
    authority.create("up")
    count = settings.scenario.peers
    members = tuple(Member(name, folder / name, port) for name, port in zip(names, ports[count:], strict=True))
    for number, member in enumerate(members):
        authority.issue(member.name)
        member.folder.mkdir()
        about = {
            "name": member.name,
            "listen": f"127.0.0.1:{ports[number]}",
            "bootstrap": [f"127.0.0.1:{ports[0]}"],
            "certificates": f"../certs/peers/{member.name}",
            "state": ".",
            "method": written(method),
            "seed": seed,
            "threads": 1,
            "wait_for": count - 1,
            "linger_s": 2.0,
            "compare_alone": False,
            "metrics_port": member.monitor_port,
            "models_per_s": max(10.0, 4 / settings.timing.interval),
        }
        text = _config_text(about, number, settings, preset)
        member.config.write_text(text, encoding="utf-8")
    return LocalFederation(folder, settings, method, seed, members)


def read_federation(folder: Path) -> LocalFederation:
    """The federation that `write_federation` wrote into a folder."""
    files = sorted(folder.glob("*/config.toml"))
    if not files:
        raise RunDirError(
            f"{folder} holds no federation of `pens up`: there is no PEER/config.toml in it. Choose another folder"
        )
    configs = [read_peer_config(path) for path in files]
    members = []
    for path, config in zip(files, configs, strict=True):
        if config.peer.metrics_port is None:
            raise SettingsError(
                f"{path}: peer.metrics_port is not set, so `pens up` cannot watch that peer: set it to a free port"
            )
        members.append(Member(config.peer.name, path.parent, config.peer.metrics_port))
    first = configs[0]
    return LocalFederation(folder, first.settings, first.peer.method, first.peer.seed, tuple(members))


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens."""
    if count > len(PORTS):
        raise SettingsError(
            f"peers = {count // 2}: each needs two ports, and there are {len(PORTS)} ({PORTS.start} to "
            f"{PORTS.stop - 1}): at most {len(PORTS) // 2} peers fit on one machine, or simulate them with `pens run`"
        )
    free: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        if _is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise SettingsError(
        f"{count} ports are needed, but only {len(free)} of {PORTS.start} to {PORTS.stop - 1} are free: "
        f"use fewer peers, {len(free) // 2} at most, or stop what listens there"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _numbered(count: int) -> list[str]:
    """peer-0, peer-1, …"""
    return [f"peer-{number:0{len(str(count - 1))}}" for number in range(count)]


def _config_text(about: Mapping[str, Any], share: int, settings: Settings, preset: tuple[str, Settings] | None) -> str:
    """A peer's file: its own sections, and all settings that differ from the preset's."""
    changes = _changes(settings, preset[1]) if preset else {}
    if preset is None or any(value is None for section in changes.values() for value in section.values()):
        # TOML has no None; without a preset, no setting has to be set to it
        preset, changes = None, _changes(settings, Settings())
    head = f"{toml_line('preset', preset[0])}\n\n" if preset else ""
    sections = {"peer": about, **changes, "data": {"share": share, **changes.get("data", {})}}
    return head + "".join(toml_section(name, values) for name, values in sections.items())


def _changes(settings: Settings, base: Settings) -> dict[str, dict[str, Any]]:
    ours, theirs = settings.model_dump(mode="json"), base.model_dump(mode="json")
    changed = {
        name: {key: value for key, value in section.items() if value != theirs.get(name, {}).get(key)}
        for name, section in ours.items()
    }
    return {name: values for name, values in changed.items() if values}
