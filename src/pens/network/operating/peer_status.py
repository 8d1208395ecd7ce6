# SPDX-License-Identifier: Apache-2.0
"""How a peer is doing, for a person at a terminal: from its monitor while it runs, otherwise from its state folder.

CONFIG.toml    its state folder, its certificate and the port of its monitor are in the file
DIR            a state folder; while a peer runs there, DIR/monitor names its monitor
URL            a monitor
"""

from __future__ import annotations

import fcntl
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

from pens.errors import CertificateError, RunDirError, SettingsError
from pens.network.certificates.certificate import identity_in, parse_certificate
from pens.network.certificates.credentials import MemberFiles
from pens.network.certificates.key_files import read_file
from pens.network.operating.peer_config import read_peer_config
from pens.storage.files import DISK, read_json, remove_file, replace_file

MONITOR = "monitor"
"""The file in the state folder that names the monitor of a peer that runs."""
_PATIENCE_S = 10.0
_HEADLINES = {
    "healthy": "runs, and works",
    "degraded": "runs, but cannot work with all members",
    "unhealthy": "runs, but needs you",
    "running": "runs, but has no monitor that tells more: set peer.metrics_port",
    "stopped": "does not run",
    "new": "has never run here",
}
_NAMED = 8  # neighbours
_USUAL = (Path("config.toml"), Path("/etc/pens/config.toml"))
_UNREAD = ": restart the peer, which writes it again"

PeerState = Literal["healthy", "degraded", "unhealthy", "running", "stopped", "new"]


@dataclass(frozen=True)
class PeerStatus:
    """What is known of a peer."""

    state: PeerState
    """running: it runs, but has no monitor that tells more. stopped: it does not run. new: it never ran."""
    told: dict[str, Any] = field(default_factory=dict)
    """What its monitor says, or the records in its folder."""
    saved: float | None = None
    """When it last saved its state, in seconds since 1970."""
    certificate_days: float | None = None
    """For how long its certificate is valid."""
    place: str = ""
    """Where this was found."""

    @property
    def exit_status(self) -> int:
        """0: it runs and works, 1: it needs a person, 3: it does not run."""
        return {"healthy": 0, "degraded": 0, "running": 0, "unhealthy": 1}.get(self.state, 3)

    def to_json(self) -> dict[str, Any]:
        days = None if self.certificate_days is None else round(self.certificate_days, 1)
        return {"state": self.state, "place": self.place, "saved": self.saved, "certificate_days": days, **self.told}


@dataclass(frozen=True)
class Target:
    """Where to look for a peer."""

    folder: Path | None = None
    url: str | None = None
    certificate: Path | None = None


def target_of(text: str | None) -> Target:
    """What a person named: a file, a state folder, or a monitor; nothing: the usual file."""
    if text is None:
        found = [path for path in _USUAL if path.is_file()]
        if not found:
            looked = " and no ".join(map(str, _USUAL))
            raise SettingsError(
                f"there is no {looked} here: name a peer's file, its state folder, or its monitor's URL"
            )
        text = str(found[0])
    if urlparse(text).scheme in ("http", "https"):
        return Target(url=text.rstrip("/").removesuffix("/healthz"))
    path = Path(text)
    if path.is_dir():
        return Target(folder=path, url=monitor_in(path))
    config = read_peer_config(path)
    folder, port = config.path(config.peer.state), config.peer.metrics_port
    url = monitor_in(folder) or (f"http://127.0.0.1:{port}" if port else None)
    return Target(folder, url, MemberFiles(config.path(config.peer.certificates)).certificate)


def status_of(target: Target) -> PeerStatus:
    """How that peer is doing."""
    days = _days_left(target.certificate)
    if target.folder is None:
        assert target.url
        told = _ask(target.url)
        if told is None:
            return PeerStatus("stopped", place=target.url)
        return PeerStatus(told["status"], told, certificate_days=days, place=target.url)
    saved, place = _saved(target.folder), str(target.folder)
    if not is_running(target.folder):
        told = _records(target.folder)
        return PeerStatus("stopped" if told or saved else "new", told, saved, days, place)
    told = _ask(target.url) if target.url else None
    if told is None:
        return PeerStatus("running", _records(target.folder), saved, days, place)
    return PeerStatus(told["status"], told, saved, days, place)


# --- the monitor ------------------------------------------------------------------------------------------------------


def name_monitor(folder: Path, url: str) -> None:
    """Write into a state folder where its peer tells how it is."""
    replace_file(folder / MONITOR, lambda path: path.write_text(url + "\n"), durable=False)


def forget_monitor(folder: Path) -> None:
    remove_file(folder / MONITOR, DISK)


def monitor_in(folder: Path) -> str | None:
    """Where the peer of a state folder tells how it is; None where it does not say."""
    try:
        return (folder / MONITOR).read_text().strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _ask(url: str) -> dict[str, Any] | None:
    """What a monitor says; None where nobody answers."""
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=_PATIENCE_S) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:  # 503: it is unhealthy, and says why
        with error:
            text = error.read()
    except OSError:
        return None
    try:
        told = json.loads(text)
        return {**told, "status": str(told["status"])}
    except (ValueError, LookupError, TypeError):
        raise SettingsError(
            f"{url}/healthz: what answers there is not the monitor of a peer: correct the URL"
        ) from None


# --- the state folder -------------------------------------------------------------------------------------------------


def is_running(folder: Path) -> bool:
    """Whether a process uses a state folder; nothing is changed in it."""
    try:
        descriptor = os.open(folder / "lock", os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise RunDirError(f"{folder / 'lock'}: {error.strerror}: run this as the user of the peer") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _records(folder: Path) -> dict[str, Any]:
    """The records that the peer saved last."""
    path = folder / "result.json"
    return read_json(path, _UNREAD) if path.is_file() else {}


def _saved(folder: Path) -> float | None:
    try:
        return (folder / "checkpoint.safetensors").stat().st_mtime
    except OSError:
        return None


def _days_left(certificate: Path | None) -> float | None:
    """None where the certificate cannot be read."""
    try:
        identity = identity_in(parse_certificate(read_file(certificate), certificate)) if certificate else None
    except CertificateError:
        return None
    return (identity.not_after - datetime.now(UTC)).total_seconds() / 86400 if identity else None


# --- as a page --------------------------------------------------------------------------------------------------------


def page(status: PeerStatus) -> tuple[str, list[tuple[str, str]]]:
    """A headline, and lines of (what, words)."""
    told = status.told
    lines = [
        ("trouble", str(told.get("trouble") or "")),
        ("phase", _phase_words(told)),
        ("members", _members_words(told)),
        ("neighbours", _names(told.get("neighbours"))),
        *_measures(told),
        ("models", _models_words(told)),
        ("exit", _exit_words(status)),
        ("saved", f"{_ago(time.time() - status.saved)} ago" if status.saved else ""),
        ("certificate", _certificate_words(status.certificate_days)),
        ("at", status.place),
    ]
    name = told.get("name") or "this peer"
    return f"{name} {_HEADLINES[status.state]}", [line for line in lines if line[1]]


def _phase_words(told: dict[str, Any]) -> str:
    progress, step = told.get("progress") or {}, told.get("step", told.get("updates"))
    words = str(told.get("phase") or "")
    if progress.get("most") and not told.get("done"):
        what = "sampling" if words == "searching" else "update"
        words += f", {what} {progress['done']} of {progress['most']}"
    if step is not None:
        words += f"; {step} models trained in all"
    return words


def _members_words(told: dict[str, Any]) -> str:
    members = told.get("members") or {}
    return ", ".join(f"{count} {state}" for state, count in members.items())


def _names(names: list[str] | None) -> str:
    if not names:
        return ""
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest


def _measures(told: dict[str, Any]) -> list[tuple[str, str]]:
    """Accuracy, or what else is measured, whatever its name."""
    kept = {key: value for key, value in told.items() if key.startswith(("kept_val_", "val_")) and _is_number(value)}
    gain = told.get("gain")
    shown = [(key.replace("_", " "), f"{value:.4f}") for key, value in kept.items() if key not in ("val_loss",)]
    return [*shown, *([("gain", f"{gain:+.4f} over training alone")] if _is_number(gain) else [])]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _models_words(told: dict[str, Any]) -> str:
    models = told.get("models") or {"in": told.get("received"), "out": told.get("sent")}
    if models.get("in") is None:
        return ""
    return f"{models['in']} received, {models['out']} sent"


def _exit_words(status: PeerStatus) -> str:
    if status.state != "stopped" or not status.told:
        return ""
    if status.told.get("final"):
        return "cleanly; start it with `pens peer`, and it goes on"
    return "killed, or still in its first update; start it with `pens peer`, and it goes on from what it saved"


def _certificate_words(days: float | None) -> str:
    if days is None:
        return ""
    return f"valid for {days:.0f} more days" if days > 0 else f"ended {-days:.0f} days ago: have a new one issued"


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
