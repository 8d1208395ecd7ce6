# SPDX-License-Identifier: Apache-2.0
"""Structured logs: one JSON object per line, or lines for a terminal; messages of native code are in them, too.

    {"time": "2031-05-01T09:30:00.123Z", "level": "INFO", "logger": "pens.network.node", "event": "joined", "peers": 3}

Callers and other members can cause lines, for instance by being refused. `Sparingly` keeps them from filling a disk: of
records that differ in numbers alone, a bounded number per minute is written, and the next one tells how many were left
out. Records made by the same line of code have a bound, too, for messages that contain words of a caller's choice.

The fields of `log.info("joined", extra={"peers": 3})` stand in the object beside the others. Nothing is configured on
import: the process that owns its logs calls `logging_to` once.

Theory of operation of `NativeLines`. gRPC's core is C++ and writes its messages (a handshake that failed, an address
that is taken) to file descriptor 2, not to Python's logging. So descriptor 2 becomes the writing end of a pipe, and a
thread turns the lines at its other end into records. Four things could go wrong:

    recursion   a handler that writes to standard error would write into the pipe again. So Python's `sys.stderr`, and
                handlers that hold it, write to the real standard error while the pipe is in place.
    deadlock    native code may write while it holds the interpreter's lock, which the thread needs to empty the pipe.
                So the writing end never blocks: with a megabyte unread, further lines are lost, but the peer goes on.
    lost lines  `stop`, and an exit of the interpreter, empty the pipe before they close it.
    no end      a child process that inherited descriptor 2 keeps the pipe open, so `stop` does not wait for the end of
                the pipe. It wakes the thread by a second pipe.
"""

from __future__ import annotations

import atexit
import fcntl
import io
import json
import logging
import math
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any, Literal, TextIO

from pens.network.operating.sparingly import LONGEST_EVENT, LONGEST_FIELD, Sparingly, fields_of
from pens.network.transport.limits import Limits
from pens.printable import printable

LogForm = Literal["json", "text"]

_native = logging.getLogger("pens.network.grpc_core")

_LONGEST_TRACEBACK = 60  # lines
_PIPE_BYTES = 1 << 20
_LONGEST_LINE = 8192
_STDERR = 2
_NATIVE_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.CRITICAL}


# --- forms ------------------------------------------------------------------------------------------------------------


class JsonLines(logging.Formatter):
    """A record as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": _utc(record.created),
            "level": record.levelname,
            "logger": record.name,
            "event": printable(record.getMessage(), LONGEST_EVENT),
        }
        for name, value in fields_of(record).items():
            fields[name if name not in fields else f"{name}_"] = _plain(value)
        if record.exc_info:
            fields["traceback"] = _traceback(self.formatException(record.exc_info))
        return json.dumps(fields, ensure_ascii=False)


class ReadableLines(logging.Formatter):
    """A record as a line for people: time, level, logger, message and fields."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        words = [
            clock,
            f"{record.levelname:<7}",
            record.name.removeprefix("pens."),
            printable(record.getMessage(), LONGEST_EVENT),
        ]
        words += [f"{name}={_word(value)}" for name, value in fields_of(record).items()]
        lines = [" ".join(words)]
        if record.exc_info:
            lines.append(_traceback(self.formatException(record.exc_info)))
        return "\n".join(lines)


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _plain(value: object) -> object:
    """A value as JSON can represent it; NaN and infinity, which it cannot, become words."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {printable(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    return printable(value, LONGEST_FIELD)


def _traceback(text: str) -> str:
    return "\n".join(printable(line, LONGEST_FIELD) for line in text.splitlines()[-_LONGEST_TRACEBACK:])


def _word(value: object) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else printable(value, LONGEST_FIELD)
    return text if text and not re.search(r"[\s\"=]", text) else json.dumps(text, ensure_ascii=False)


# --- destinations -----------------------------------------------------------------------------------------------------


@contextmanager
def logging_to(
    file: Path | None = None,
    form: LogForm = "json",
    level: str = "INFO",
    native: NativeLines | None = None,
    limits: Limits | None = None,
) -> Iterator[None]:
    """Write all records of the process to a file (which may be moved away meanwhile), or to standard error.

    `native`: turns lines of native code into records, too; it is started and stopped here. `limits`: on bytes a minute.
    """
    handler: logging.Handler = WatchedFileHandler(file, encoding="utf-8") if file else logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else ReadableLines())
    handler.addFilter(Sparingly(limits=limits))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        with native or nullcontext():
            yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
        handler.close()


# --- native lines -----------------------------------------------------------------------------------------------------


class NativeLines:
    """Turns lines that native code writes to file descriptor 2 into records of the logger `pens.network.grpc_core`.

    Use it as a context, or call start and stop; a process can have one at a time.
    """

    def __init__(self, refusal_in: Callable[[str], str | None] = lambda line: None) -> None:
        """`refusal_in`: why a caller was turned away, if a line tells it; such a line becomes a warning of its own."""
        self._refusal_in = refusal_in
        self._thread: threading.Thread | None = None

    def __enter__(self) -> NativeLines:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Replace descriptor 2 by the pipe."""
        sys.stderr.flush()
        self._python_stderr: TextIO = sys.stderr
        self._real = os.dup(_STDERR)
        self._lines, write_end = os.pipe()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._lines, False)
        os.set_blocking(write_end, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            _enlarge(write_end)
        os.dup2(write_end, _STDERR)
        os.close(write_end)
        self._stderr = io.TextIOWrapper(
            io.FileIO(self._real, "w", closefd=False), errors="backslashreplace", write_through=True
        )
        self._lead_python_to(self._stderr)
        self._thread = threading.Thread(target=self._read, name="native lines", daemon=True)
        self._thread.start()
        atexit.register(self.stop)

    def stop(self) -> None:
        """Restore descriptor 2, after the last line written so far."""
        if not self._thread:
            return
        atexit.unregister(self.stop)
        os.dup2(self._real, _STDERR)
        os.write(self._wake, b"!")
        self._thread.join()
        self._thread = None
        self._lead_python_to(self._python_stderr)
        self._stderr.close()
        for descriptor in (self._real, self._lines, self._woken, self._wake):
            os.close(descriptor)

    def _lead_python_to(self, stream: TextIO) -> None:
        """Let Python's standard error, and handlers that write to it, write to this stream."""
        before, sys.stderr = sys.stderr, stream
        for handler in _stream_handlers():
            if handler.stream is before:
                handler.setStream(stream)

    def _read(self) -> None:
        rest, going = b"", True
        while going:
            ready, _, _ = select.select([self._lines, self._woken], [], [])
            going = self._woken not in ready
            while chunk := self._next_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._log(line)
                while len(rest) > _LONGEST_LINE:
                    self._log(rest[:_LONGEST_LINE])
                    rest = rest[_LONGEST_LINE:]
        self._log(rest)

    def _next_bytes(self) -> bytes:
        try:
            return os.read(self._lines, 1 << 16)
        except BlockingIOError:
            return b""

    def _log(self, line: bytes) -> None:
        text = line[:_LONGEST_LINE].decode(errors="replace").strip()
        if reason := self._refusal_in(text):
            _native.warning("connection refused", extra={"reason": reason, "line": text})
        elif text:
            _native.log(_native_level(text), "%s", text)


def _enlarge(pipe: int) -> None:
    try:
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except PermissionError:  # the user's pipes hold too much already: the usual size will do
        return


def _native_level(text: str) -> int:
    """The level of a line of gRPC, which begins with a letter and digits: `E0000 00:00:1700000000.1 …`."""
    if "not suitable for production" in text:  # a warning about the verbosity that pens sets
        return logging.DEBUG
    prefix = re.match(r"([IWEF])\d{4} ", text)
    return _NATIVE_LEVELS[prefix[1]] if prefix else logging.WARNING


def _stream_handlers() -> Iterator[logging.StreamHandler[Any]]:
    loggers = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    for logger in loggers:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if isinstance(handler, logging.StreamHandler):
                yield handler
