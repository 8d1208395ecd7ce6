# SPDX-License-Identifier: Apache-2.0
"""Peers as processes of this machine: starting them, looking at them, stopping them.

How a peer is doing is read from its `/healthz`, not only from the process that was started here: a peer that was killed
and that somebody started again is there again, as the child of another process. A peer that is there is not started a
second time, and a peer that ended is not started again.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pens.network.federation.loopback import Member

Presence = Literal["starts", "there", "ended", "dead"]

_STOPPING_S = 20.0
_ANSWER_S = 2.0
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Sighting:
    """What is known of a peer at one moment."""

    name: str
    presence: Presence
    health: Mapping[str, Any] | None
    """Its last answer of /healthz."""
    exit_code: int | None = None
    """Exit code of the process that was started here."""
    exit_message: str = ""
    """The last line of its log, if it exited uncleanly."""

    @property
    def end(self) -> str:
        """How the process ended, in words."""
        if self.exit_code is None:
            return "not there"
        if self.exit_code < 0:
            return f"killed by {signal.Signals(-self.exit_code).name}"
        return f"exit code {self.exit_code}"


class PeerProcess:
    """One peer, and the process that was started for it."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self._process: subprocess.Popen[bytes] | None = None
        self._started = time.time()
        self._health: Mapping[str, Any] | None = None

    def start(self) -> None:
        """Start the peer, unless it is there already."""
        if _ask(self.member):
            return
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "pens", "peer", str(self.member.config)]
        with self.member.log.open(
            "ab"
        ) as log:  # a session of its own: Ctrl-C reaches this process alone, which stops the peers
            self._process = subprocess.Popen(command, stderr=log, stdout=log, env=environment, start_new_session=True)

    @property
    def runs(self) -> bool:
        """Whether the process that was started here runs."""
        return self._process is not None and self._process.poll() is None

    def look(self) -> Sighting:
        """What is known of the peer now."""
        answer = _ask(self.member)
        self._health = answer or self._health
        exit_code = None if self._process is None else self._process.poll()
        presence = self._presence(answer is not None, exit_code)
        exit_message = _last_line(self.member.log) if presence == "dead" else ""
        return Sighting(self.member.name, presence, self._health, exit_code, exit_message)

    def _presence(self, answers: bool, exit_code: int | None) -> Presence:
        if answers:
            return "there"
        if self.runs:
            return "there" if self._health else "starts"
        return "ended" if exit_code == 0 or self._exited_cleanly() else "dead"

    def _exited_cleanly(self) -> bool:
        """Whether the peer exited cleanly, in a life that began after it was started here."""
        path = self.member.folder / "result.json"
        try:
            return path.stat().st_mtime >= self._started and bool(json.loads(path.read_text("utf-8"))["final"])
        except (OSError, ValueError, KeyError):
            return False

    def tell_to_stop(self) -> None:
        """Ask the process to finish its update, save and exit."""
        if self._process and self.runs:
            self._process.terminate()

    def wait(self, patience_s: float) -> None:
        """Wait for the end of the process, at most this long."""
        if self._process:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(patience_s)

    def kill(self) -> None:
        """End the process at once."""
        if self._process and self.runs:
            self._process.kill()
            self._process.wait()


class PeerProcesses:
    """All peers of a federation."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.peers = [PeerProcess(member) for member in members]
        self._lookers = ThreadPoolExecutor(max_workers=min(32, len(members)))

    def start(self) -> None:
        """Start all peers that are not there already."""
        for peer in self.peers:
            peer.start()

    def look(self) -> list[Sighting]:
        """What is known of each peer now."""
        return list(self._lookers.map(PeerProcess.look, self.peers))

    def stop(self) -> None:
        """Stop the peers that were started here. Those that do not end in time are killed, by Ctrl-C at once."""
        for peer in self.peers:
            peer.tell_to_stop()
        end = time.monotonic() + _STOPPING_S
        try:
            for peer in self.peers:
                peer.wait(max(0.0, end - time.monotonic()))
        finally:
            for peer in self.peers:
                peer.kill()
            self._lookers.shutdown()


def _ask(member: Member) -> Mapping[str, Any] | None:
    """The answer of `/healthz`; None if that peer does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", member.monitor_port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/healthz")
        health = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    return health if isinstance(health, dict) and health.get("name") == member.name else None


def _last_line(path: Path) -> str:
    """The last line of a log, as people read it."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((_readable(line) for line in reversed(lines) if line.strip()), "")


def _readable(line: str) -> str:
    try:
        record = json.loads(line)
    except ValueError:
        return line.strip()
    if not isinstance(record, dict):
        return line.strip()
    extra = [f"{key}={value}" for key, value in record.items() if key not in ("time", "level", "logger", "event")]
    return " ".join([str(record.get("event", "")), *extra])
