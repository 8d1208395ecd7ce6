# SPDX-License-Identifier: Apache-2.0
"""Records as lines, and native code's lines as records."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pens.network.operating import logs
from pens.network.operating.logs import JsonLines, ReadableLines, logging_to
from pens.network.operating.sparingly import LONGEST_EVENT, Sparingly
from pens.network.transport.limits import Limits
from pens.printable import printable

log = logging.getLogger("pens.network.test")
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


def record(message: str, **extra: object) -> logging.LogRecord:
    return logging.makeLogRecord({"name": "pens.network.test", "levelname": "INFO", "msg": message, **extra})


@given(st.text(), ANY_VALUE)
def test_every_record_is_one_line_of_strict_json(message: str, value: object) -> None:
    line = JsonLines().format(record(message, members=value))
    assert "\n" not in line
    fields = json.loads(line, parse_constant=pytest.fail)
    assert list(fields) == ["time", "level", "logger", "event", "members"]
    assert fields["event"] == printable(message, LONGEST_EVENT)


@given(st.text(), st.text())
def test_every_record_is_one_line_for_people(message: str, value: str) -> None:
    line = ReadableLines().format(record(message, peer=value))
    assert "\n" not in line
    assert "\r" not in line


def test_time_is_utc() -> None:
    fields = json.loads(JsonLines().format(logging.makeLogRecord({"created": 0.25, "msg": "x"})))
    assert fields["time"] == "1970-01-01T00:00:00.250Z"
    assert datetime.fromisoformat(fields["time"]).timestamp() == 0.25


def test_fields_are_flat_and_hide_nothing() -> None:
    fields = json.loads(JsonLines().format(record("joined", members=3, loss=float("nan"), event="mine", level="low")))
    assert fields == fields | {"members": 3, "loss": "nan", "event": "joined", "event_": "mine", "level_": "low"}


def test_a_line_for_people() -> None:
    line = ReadableLines().format(record("sent", peer="b", reason="took too long", loss=0.123456, name="pens.network"))
    assert re.fullmatch(r'\d\d:\d\d:\d\d INFO    network sent peer=b reason="took too long" loss=0.1235', line)


@pytest.mark.parametrize("formatter", [JsonLines(), ReadableLines()])
def test_tracebacks_are_kept(formatter: logging.Formatter) -> None:
    try:
        raise ValueError("no such thing")
    except ValueError:
        found = record("failed", exc_info=sys.exc_info())
    assert "ValueError: no such thing" in formatter.format(found)


def test_nothing_of_others_reaches_a_terminal_as_it_is() -> None:
    evil = "\x1b[2J\u202e" + "x" * 510_000
    for formatter in (JsonLines(), ReadableLines()):
        line = formatter.format(record(evil, member=evil, why=[evil, {evil: evil}]))
        assert line.isprintable()
        assert len(line) < 20_000


def test_a_member_has_a_bound_of_its_own_in_lines_and_in_bytes() -> None:
    sparingly = Sparingly(
        per_minute=1000, per_line=1000, limits=Limits(log_lines_of_member=10, log_bytes_of_member=3000)
    )

    def passed(member: str, words: str, count: int) -> int:
        return sum(
            sparingly.filter(record(f"{words} {chr(97 + n)}", member=member, created=n / 100, lineno=n))
            for n in range(count)
        )

    assert passed("mallory", "refused", 20) == 10
    assert passed("bob", "refused " + "y" * 800, 20) == 3
    assert passed("alice", "refused", 5) == 5


def test_a_place_has_a_bound_in_bytes() -> None:
    sparingly = Sparingly(per_minute=1000, per_line=1000, limits=Limits(log_bytes_per_minute=5000))
    lines = [record(chr(97 + n) + "x" * 2000, created=n / 100) for n in range(20)]
    assert sum(map(sparingly.filter, lines)) == 2
    assert sparingly.filter(record("x" * 3000, created=61.0))


def test_of_one_sort_some_are_written_and_the_rest_counted() -> None:
    sparingly = Sparingly(per_minute=2)

    def passes(message: str, at: float) -> tuple[bool, object]:
        found = record(message, created=at)
        return sparingly.filter(found), getattr(found, "left_out", None)

    told = [passes(f"refused 10.0.0.1:{port}", at=port / 1000) for port in range(5)]
    assert told == [(True, None)] * 2 + [(False, None)] * 3
    assert passes("refused 10.0.0.1 for another reason", at=1.0) == (True, None)
    assert passes("refused 10.0.0.1:7", at=60.0) == (True, 3)
    assert passes("refused 10.0.0.1:8", at=61.0) == (True, None)


def test_sorts_of_a_callers_choice_take_bounded_memory() -> None:
    sparingly = Sparingly()
    for i in range(5000):
        sparingly.filter(record("".join(chr(97 + int(digit)) for digit in str(i)) + "x" * 500))
    assert len(sparingly._kinds) <= 1000
    assert all(len(key[2]) <= 200 for key in sparingly._kinds)


def test_logging_to_a_file_ends_with_its_context(tmp_path: Path) -> None:
    handlers = list(logging.getLogger().handlers)
    with logging_to(tmp_path / "peer.log", level="WARNING"):
        log.info("not this")
        log.warning("this", extra={"step": 2})
    log.warning("nor this")
    (line,) = (tmp_path / "peer.log").read_text().splitlines()
    assert json.loads(line)["step"] == 2
    assert logging.getLogger().handlers == handlers


def test_a_file_may_be_moved_away(tmp_path: Path) -> None:
    with logging_to(tmp_path / "peer.log"):
        log.warning("before")
        (tmp_path / "peer.log").rename(tmp_path / "peer.log.1")
        log.warning("after")
    assert json.loads((tmp_path / "peer.log").read_text())["event"] == "after"


# --- native lines -----------------------------------------------------------------------------------------------------


PRELUDE = f"""
import ctypes, importlib.util, logging, os, subprocess, sys
spec = importlib.util.spec_from_file_location("logs", {logs.__file__!r})  # alone: the package would take seconds
logs = sys.modules["logs"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(logs)
logs.Sparingly = lambda **_: (lambda record: True)
"""


def run(code: str) -> list[dict[str, str]]:
    """What a process with this code logs."""
    done = subprocess.run([sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize("first", ["logs", "native"])
def test_native_lines_become_records(first: str) -> None:
    """Whichever is set up first: what is logged to standard error does not come back as a native line."""
    set_up = {
        "logs": "with logs.logging_to(native=logs.NativeLines()):",
        "native": "with logs.NativeLines() as native, logs.logging_to():",
    }
    lines = run(f"""
{set_up[first]}
    os.write(2, b"E0000 00:00:17.1 handshake failed\\nW0000 00:00:17.2 slow\\nplain")
    logging.getLogger("pens").info("own")
    os.write(2, b" line\\n")
    if {first == "native"}:
        native.stop()
""")
    native = [(line["level"], line["event"]) for line in lines if line["logger"] == "pens.network.grpc_core"]
    assert native == [
        ("ERROR", "E0000 00:00:17.1 handshake failed"),
        ("WARNING", "W0000 00:00:17.2 slow"),
        ("WARNING", "plain line"),
    ]
    assert [line["event"] for line in lines if line["logger"] == "pens"] == ["own"]


def test_a_line_about_a_refusal_says_why() -> None:
    (line,) = run("""
def refusal_in(line):
    return line.partition("because ")[2] or None
with logs.logging_to(native=logs.NativeLines(refusal_in)):
    os.write(2, b"I0000 handshake failed because no certificate\\n")
""")
    assert (line["level"], line["event"], line["reason"]) == ("WARNING", "connection refused", "no certificate")


def test_the_real_grpc_core_is_heard() -> None:
    lines = run("""
os.environ["GRPC_VERBOSITY"] = "DEBUG"
with logs.logging_to(level="DEBUG", native=logs.NativeLines()):
    import grpc
    grpc.insecure_channel("127.0.0.1:1").close()
""")
    assert "pens.network.grpc_core" in {line["logger"] for line in lines}


def test_no_line_is_lost_at_exit() -> None:
    lines = run("""
context = logs.logging_to(native=logs.NativeLines())
context.__enter__()
for i in range(2000):
    os.write(2, b"line %d\\n" % i)
os.write(2, b"the end")
""")
    assert [line["event"] for line in lines] == [*(f"line {i}" for i in range(2000)), "the end"]


def test_native_code_that_holds_the_lock_does_not_hang() -> None:
    lines = run("""
flood = b"x" * 1000 + b"\\n"
with logs.logging_to(native=logs.NativeLines()):
    write = ctypes.PyDLL(None).write  # keeps the interpreter's lock
    for _ in range(5000):
        write(2, flood, len(flood))
""")
    assert len(lines) >= 60


def test_a_child_that_keeps_the_pipe_does_not_keep_the_parent() -> None:
    lines = run("""
with logs.logging_to(native=logs.NativeLines()):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    os.write(2, b"said\\n")
child.communicate(b"\\n")
""")
    assert [line["event"] for line in lines] == ["said"]


def test_a_line_without_end_takes_bounded_memory() -> None:
    lines = run("""
with logs.logging_to(native=logs.NativeLines()):
    for _ in range(10):
        os.write(2, b"y" * 10_000)
""")
    assert "".join(line["event"] for line in lines) == "y" * 100_000
    assert max(len(line["event"]) for line in lines) <= 8192


def test_afterwards_descriptor_2_and_stderr_are_as_before() -> None:
    lines = run("""
before = sys.stderr
with logs.NativeLines():
    pass
assert sys.stderr is before
os.write(2, b'{"event": "raw"}\\n')
print('{"event": "printed"}', file=sys.stderr)
with logs.NativeLines():
    print('{"event": "inside"}', file=sys.stderr)
""")
    assert [line["event"] for line in lines] == ["raw", "printed", "inside"]
