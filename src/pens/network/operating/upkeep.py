# SPDX-License-Identifier: Apache-2.0
"""What a peer looks after while it runs: files that change, and certificates, authorities and lists that end.

Every few seconds it looks whether its certificate, key, authorities, revocation list or settings have changed, and
reads them again; SIGHUP makes it do so at once. Files that do not fit are refused with a line in the log and in
/healthz, and what was in use remains so. Of what ends soon, the log warns 30, 14, 7, 3 and 1 days before and then once
a day.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from datetime import UTC, datetime

from pens.errors import CertificateError, PensError
from pens.network.certificates.credentials import Credentials
from pens.network.certificates.expiry import Term, Warnings
from pens.network.operating.file_watch import FileWatch
from pens.network.operating.live_settings import CHANGEABLE, changes_between, merged
from pens.network.operating.peer_config import PeerConfig

LOOK_S = 2.0
SOON_DAYS = 7.0
_log = logging.getLogger("pens.network.upkeep")


class Upkeep:
    """Follows a peer's files, and tells what ends."""

    def __init__(
        self,
        credentials: Credentials,
        config: PeerConfig | None = None,
        read: Callable[[], PeerConfig] | None = None,
        watched: FileWatch | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`read`: reads the file of settings again; `watched`: that file. Without these, settings stay as they are."""
        self.credentials, self._config, self._read = credentials, config, read
        self._certificates, self._settings = FileWatch(credentials.paths), watched
        self.use: Callable[[PeerConfig], None] | None = None
        """Called with settings that are in use from now on; None: the peer is still starting."""
        self._refused: dict[str, str] = {}
        self._warnings, self._clock = Warnings(), clock

    # --- files that change --------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Look after everything until cancelled."""
        while True:
            try:
                self.look()
            except Exception:  # a peer goes on learning whatever happens here
                _log.exception("upkeep failed")
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Read what has changed, and warn of what ends."""
        if self._certificates.has_changed():
            self._reload_certificates()
        if self._settings and self._settings.has_changed():
            self._reload_settings()
        now = self._clock()
        for term in self._warnings.due(self.credentials.terms(), now):
            level = logging.ERROR if term.ends <= now else logging.WARNING
            _log.log(level, "%s", term.words(now), extra={"seconds_left": int(term.left(now).total_seconds())})

    def reload(self) -> None:
        """Read everything again, changed or not."""
        if self.use is None:
            return  # it looks at its files as soon as it has started
        _log.info("reads its files again")
        self._reload_certificates()
        self._reload_settings()

    def _reload_certificates(self) -> None:
        try:
            news = self.credentials.reload()
        except CertificateError as error:
            self._refuse("certificates", error)
        else:
            self._refused.pop("certificates", None)
            _log.info("certificates read", extra={"new": news or "nothing"})

    def _reload_settings(self) -> None:
        if not (self._read and self._config and self.use):
            return
        try:
            new = self._read()
        except PensError as error:
            self._refuse("settings", error)
            return
        changes = changes_between(self._config, new)
        self._config = merged(self._config, new)
        self.use(self._config)
        self._refused.pop("settings", None)
        _log.info("settings read", extra={"new": dict(changes.applied) or "nothing"})
        for name, value in changes.refused.items():
            _log.warning(
                "%s cannot change while the peer runs: %r remains in use until a restart. Of section [peer], these can "
                "change: %s",
                *(name, value, ", ".join(CHANGEABLE)),
            )

    def _refuse(self, what: str, error: PensError) -> None:
        self._refused[what] = f"{what} refused, those in use remain: {error}"
        _log.error("%s refused, those in use remain: %s", what, error)

    # --- what a person should know (from any thread) ------------------------------------------------------------------

    @property
    def soon_days(self) -> float:
        """So many days before something ends /healthz says that the peer is degraded."""
        return self._config.peer.expires_soon_days if self._config else SOON_DAYS

    def trouble(self, now: datetime) -> str | None:
        """Why other members refuse this one, or this one all others; None if they do not."""
        own = self.credentials
        if own.is_revoked(own.identity.serial):
            return "the certificate has been revoked: ask the federation's authority"
        for term in own.terms():
            if term.kind == "certificate" and term.ends <= now:
                return term.words(now)
        if own.all_lists_out_of_date():
            return "no revocation list is up to date, so no member is trusted: " + self._worst_list(now).words(now)
        return None

    def degraded(self, now: datetime) -> str | None:
        """What should be done soon; None if nothing."""
        ending = [term for term in self.credentials.terms() if term.is_ending(now, self.soon_days)]
        words = [*self._refused.values(), *(term.words(now) for term in sorted(ending, key=lambda term: term.ends))]
        return "; ".join(words) or None

    def expiry(self, now: datetime) -> dict[tuple[str, str], float]:
        """Seconds until the end of everything that ends, by what it is and whose."""
        return {(term.kind, term.of): term.left(now).total_seconds() for term in self.credentials.terms()}

    def _worst_list(self, now: datetime) -> Term:
        return min(
            (t for t in self.credentials.terms() if t.kind == "revocation list"), key=lambda term: term.left(now)
        )


def follow_hangups(upkeep: Upkeep, stop: Callable[[], None]) -> None:
    """Let SIGHUP make the peer read its files again; where it came because a terminal was closed, let it stop."""
    is_ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # nohup
    had_terminal = not is_ignored and _has_terminal()

    def on_hangup() -> None:
        if had_terminal and not _has_terminal():
            stop()
        else:
            upkeep.reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, on_hangup)


def _has_terminal() -> bool:
    """Whether the process has a terminal that would be closed with it."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
