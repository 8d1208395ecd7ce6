# SPDX-License-Identifier: Apache-2.0
"""Tries faults: forks a process for each, exchanges one function's code in it, and runs the tests that call it."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import json
import os
import pickle
import resource
import select
import signal
import sys
import time
import tomllib
import warnings
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.mutants.operators import Mutant, functions_of, mutants_of
from tests.mutants.targets import Target

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "pens"
RECORD = ROOT / ".mutants.json"
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
SURVIVED = "survived"
_MEMORY_BYTES = 8 << 30


def path_of(module: str) -> Path:
    return SOURCE / (module.replace(".", "/") + ".py")


@dataclass
class Child:
    """A fault that is being tried."""

    mutant: Mutant
    pipe: int
    deadline: float


@dataclass
class Hunt:
    """A pytest plugin that tries faults in place of running the tests once."""

    targets: Mapping[str, Target]
    jobs: int
    timeout_s: float
    budget_s: float
    again: bool
    outcomes: dict[str, str] = field(default_factory=dict)
    """Of each fault: the test that noticed it, how it ended, or `survived`."""
    _mutants: list[Mutant] = field(default_factory=list)
    _items: dict[str, pytest.Item] = field(default_factory=dict)
    _durations: dict[str, float] = field(default_factory=dict)
    _reach: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """The functions that each test calls."""
    _slow: set[str] = field(default_factory=set)
    """Tests that take too much of the budget: they are not run at all."""
    _has_failed: bool = False
    _failures: list[str] = field(default_factory=list)
    _seconds: float = 0.0

    # --- hooks --------------------------------------------------------------------------------------------------------

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed = self._has_failed or report.failed
        self._failures += [f"{report.nodeid}: {report.longreprtext}"] if report.failed else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise pytest.UsageError("the tests cannot be collected")
        begun, digest = time.monotonic(), _digest()
        self._items = {item.nodeid: item for item in session.items}
        for item in session.items:
            _always_the_same_examples(item)
        self._mutants = self._faults()
        self._slow = set(_read_record()["slow"])
        self._measure()
        self._try_all(digest)
        self._seconds = time.monotonic() - begun
        return True

    def _faults(self) -> list[Mutant]:
        found: list[Mutant] = []
        for name, target in self.targets.items():
            found += mutants_of(name, path_of(name).read_text(encoding="utf-8"), target.only)
        return found

    # --- without a fault ----------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """Run each test once: how long it takes, and what it calls. Slow ones are cut short, and not used."""
        with os.fdopen(_fork(self._measure_here), "rb") as pipe:
            failures, self._durations, self._reach = pickle.load(pipe)
        if failures:
            raise pytest.UsageError("tests fail without a fault: " + "\n".join(failures))
        self._slow |= {test for test, seconds in self._durations.items() if seconds >= self.budget_s / 2}

    def _measure_here(self, pipe: int) -> None:
        self._be_quiet()
        called: set[tuple[str, str]] = set()
        for name in self.targets:
            _let_note(name, called)
        durations, reach = {}, {}
        for item in self._items.values():
            if item.nodeid in self._slow:
                continue
            called.clear()
            begun = time.process_time()
            signal.signal(signal.SIGVTALRM, _skip)
            signal.setitimer(signal.ITIMER_VIRTUAL, self.budget_s / 2)
            self._run(item)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            durations[item.nodeid], reach[item.nodeid] = time.process_time() - begun, set(called)
        with os.fdopen(pipe, "wb") as stream:
            pickle.dump((self._failures, durations, reach), stream)

    def _be_quiet(self) -> None:
        """No dots from a child."""
        plugins = next(iter(self._items.values())).config.pluginmanager
        plugins.unregister(plugins.get_plugin("terminalreporter"))

    def _run(self, item: pytest.Item) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)

    # --- with one -----------------------------------------------------------------------------------------------------

    def _try_all(self, digest: str) -> None:
        before = _read_record()
        known = before["outcomes"] if before["digest"] == digest and not self.again else {}
        self.outcomes = {m.name: known[m.name] for m in self._mutants if m.name in known}
        accepted = {name for name, _ in equivalents()}
        todo = deque(m for m in self._mutants if m.name not in self.outcomes and m.name not in accepted)
        if self.again:
            todo = deque(m for m in self._mutants if before["outcomes"].get(m.name) == SURVIVED)
        running: dict[int, Child] = {}
        total = len(todo)
        while todo or running:
            while todo and len(running) < self.jobs:
                self._begin(todo.popleft(), before["outcomes"], running)
            self._await(running)
            done = total - len(todo) - len(running)
            if done % 50 == 0:
                self._keep(digest, before["outcomes"])
                left = Counter(self.outcomes.values())[SURVIVED]
                print(f"{done} of {total} faults tried, {left} survived", file=sys.__stderr__, flush=True)
        self._keep(digest, before["outcomes"])

    def _keep(self, digest: str, before: Mapping[str, str]) -> None:
        record = {"digest": digest, "slow": sorted(self._slow), "outcomes": {**before, **self.outcomes}}
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False), encoding="utf-8")

    def _begin(self, mutant: Mutant, before: Mapping[str, str], running: dict[int, Child]) -> None:
        tests = self._tests_for(mutant, before.get(mutant.name))
        if not tests:
            self.outcomes[mutant.name] = SURVIVED
            return
        pipe = _fork(functools.partial(self._try, mutant, tests))
        seconds = sum(self._durations[test] for test in tests)
        running[pipe] = Child(mutant, pipe, time.monotonic() + 10 * seconds + self.timeout_s)

    def _tests_for(self, mutant: Mutant, first: str | None) -> list[str]:
        """Those that call the faulty function, within the budget: first the one that noticed the fault the last time,
        then those that noticed most others for the time they take."""
        place = (mutant.module, mutant.function)
        files = self.targets[mutant.module].tests
        reaching = [
            test
            for test, called in self._reach.items()
            if place in called and test not in self._slow and test.split("::")[0] in files
        ]
        noticed = Counter(self.outcomes.values())
        reaching.sort(key=lambda test: (test != first, -(noticed[test] + 1) / (self._durations[test] + 0.01)))
        spent = 0.0
        chosen: list[str] = []
        for test in reaching:
            spent += self._durations[test]
            if chosen and spent > self.budget_s:
                break
            chosen.append(test)
        return chosen

    def _try(self, mutant: Mutant, tests: Sequence[str], pipe: int) -> None:
        """In the child: exchange the code, and run tests until one fails."""
        self._be_quiet()
        try:
            exchange_code(mutant.module, mutant.function, mutant.tree())
        except (SyntaxError, ValueError):
            os.write(pipe, b"not code")
            return
        for test in tests:
            signal.signal(signal.SIGVTALRM, lambda *_, test=test: _end(pipe, f"{test} (timeout)"))
            signal.setitimer(signal.ITIMER_VIRTUAL, 3 + 10 * self._durations[test])
            self._run(self._items[test])
            if self._has_failed:
                os.write(pipe, test.encode())
                return
        os.write(pipe, SURVIVED.encode())

    def _await(self, running: dict[int, Child]) -> None:
        """Until a child has an answer, or has taken too long."""
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for pipe in ready:
            child = running.pop(pipe)
            with os.fdopen(pipe, "rb") as stream:
                self.outcomes[child.mutant.name] = stream.read().decode() or "crash"
        for pipe, child in list(running.items()):
            if time.monotonic() > child.deadline:
                _children.kill(pipe)
                del running[pipe]
                os.close(pipe)
                self.outcomes[child.mutant.name] = "timeout"
        _children.reap()

    # --- what was found -----------------------------------------------------------------------------------------------

    def report(self) -> int:
        """Print it; 1 if something has to be done."""
        if not self.outcomes:
            return 1
        accepted = dict(equivalents())
        survivors = [m for m in self._mutants if self.outcomes.get(m.name) == SURVIVED and m.name not in accepted]
        names = {m.name for m in self._mutants}
        mine = [name for name in accepted if name.split()[0] in self.targets]
        stale = [name for name in mine if name not in names or self.outcomes.get(name, SURVIVED) != SURVIVED]
        print(f"\n{'module':<18}{'faults':>8}{'noticed':>9}{'equivalent':>12}{'survived':>10}")
        for module in (*self.targets, "all"):
            some = [m for m in self._mutants if module in (m.module, "all")]
            equal, alive = sum(m.name in accepted for m in some), sum(m in survivors for m in some)
            print(f"{module:<18}{len(some):>8}{len(some) - equal - alive:>9}{equal:>12}{alive:>10}")
        for mutant in survivors:
            print(f"survived  {path_of(mutant.module).relative_to(ROOT)}:{mutant.line}  {mutant.name}")
        for name in stale:
            print(f"out of date in equivalent.toml: {name}")
        print(f"{self._seconds:.0f} s")
        return int(bool(survivors or stale))


# --- code -------------------------------------------------------------------------------------------------------------


def exchange_code(module: str, function: str, tree: ast.Module) -> None:
    """Let a function of this process run the code that it has in a changed module."""
    owner: Any = importlib.import_module(f"pens.{module}")
    code = compile(tree, str(path_of(module)), "exec", dont_inherit=True)
    for part in function.split("."):
        code = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part][-1]
        owner = vars(owner)[part]
    _function(owner).__code__ = code


def _let_note(module: str, called: set[tuple[str, str]]) -> None:
    """Let each function of a module note that it was called."""
    vars(importlib.import_module(f"pens.{module}"))["__called__"] = called
    tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
    functions = list(functions_of(tree))
    for name, function in functions:
        function.body[:0] = ast.parse(f"__called__.add({(module, name)!r})").body
    for name, _ in functions:
        exchange_code(module, name, ast.fix_missing_locations(tree))


def _function(wrapped: Any) -> FunctionType:
    """The function inside a property, static method, cache or context manager."""
    while not isinstance(wrapped, FunctionType) or hasattr(wrapped, "__wrapped__"):
        inner = next(name for name in ("__wrapped__", "fget", "__func__", "func") if hasattr(wrapped, name))
        wrapped = getattr(wrapped, inner)
    return wrapped


def _always_the_same_examples(item: pytest.Item) -> None:
    from hypothesis import Phase, settings  # not before pytest, which looks for its plugin

    test: Any = getattr(item, "obj", None)
    if hasattr(test, "_hypothesis_internal_use_settings"):
        old = test._hypothesis_internal_use_settings
        test._hypothesis_internal_use_settings = settings(
            old, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
        )


def _skip(*_: object) -> None:
    pytest.skip("takes too much of the budget")


# --- processes --------------------------------------------------------------------------------------------------------


class _Children:
    """Processes that were started here, by the pipe on which each answers."""

    def __init__(self) -> None:
        self._pids: dict[int, int] = {}

    def add(self, pipe: int, pid: int) -> None:
        self._pids[pipe] = pid

    def kill(self, pipe: int) -> None:
        os.kill(self._pids[pipe], signal.SIGKILL)

    def reap(self) -> None:
        for pipe, pid in list(self._pids.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self._pids[pipe]


_children = _Children()


def _fork(work: Any) -> int:
    """A child that does the work, silently, and answers on the pipe that is returned."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads that libraries started and that sleep
        pid = os.fork()
    if pid:
        os.close(writing)
        _children.add(reading, pid)
        return reading
    try:
        os.close(reading)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        work(writing)
    finally:
        os._exit(0)


def _end(pipe: int, answer: str) -> None:
    os.write(pipe, answer.encode())
    os._exit(0)


# --- files ------------------------------------------------------------------------------------------------------------


def equivalents() -> Iterator[tuple[str, str]]:
    """Faults that change nothing, each with the reason."""
    for entry in tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", []):
        yield from ((name, entry["reason"]) for name in entry["faults"])


def _digest() -> str:
    """Of all sources and tests: with the same ones every fault has the same outcome."""
    files = [*SOURCE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    files = sorted(file for file in files if file.parent != EQUIVALENT.parent)
    return hashlib.blake2b(b"".join(file.read_bytes() for file in files), digest_size=16).hexdigest()


def _read_record() -> dict[str, Any]:
    """What the last run found."""
    nothing: dict[str, Any] = {"digest": "", "slow": [], "outcomes": {}}
    return {**nothing, **json.loads(RECORD.read_text(encoding="utf-8"))} if RECORD.exists() else nothing
