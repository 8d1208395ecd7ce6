# SPDX-License-Identifier: Apache-2.0
"""`make mutants`: put faults into the rules, one at a time, and list those that no test notices.

    python -m tests.mutants [MODULE …] [--jobs N] [--budget SECONDS] [--again]

Theory of operation. One process imports the package and collects the tests; for each fault it forks. The child
exchanges the code of the faulty function in memory, so no file is touched and nothing is imported again, and runs the
tests that call it until one fails. Which tests call which function, and how long each one takes, comes from one run of
all of them without a fault; tests that take too much of the budget are left out. Property tests draw the same examples
each time. (mutmut 3 leaves properties and static methods alone and does not run with our versions of pytest; cosmic-ray
changes files, and starts Python and imports torch for each fault.)

`equivalent.toml` names the faults that change nothing that a user or the paper could notice, with the reason. All other
survivors are listed and make the command fail, as do entries that are out of date. Which test found a fault is kept in
`.mutants.json`, so that the next run tries that test first.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from tests.mutants.runner import Hunt
from tests.mutants.targets import TARGETS

FOLDER = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Faults that no test notices.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"some of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="faults that are tried at the same time")
    parser.add_argument("--timeout", type=float, default=20.0, help="seconds that tests may take longer than usual")
    parser.add_argument("--budget", type=float, default=6.0, help="seconds of tests that a fault may cost")
    parser.add_argument("--again", action="store_true", help="try only those that survived the last time")
    options = parser.parse_args()
    if unknown := set(options.modules) - set(TARGETS):
        parser.error(f"unknown module {', '.join(sorted(unknown))}: choose from {', '.join(TARGETS)}")
    targets = {name: TARGETS[name] for name in options.modules or TARGETS}
    files = list(dict.fromkeys(file for target in targets.values() for file in target.tests))
    hunt = Hunt(targets, options.jobs, options.timeout, options.budget, options.again)
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files]
    pytest.main([*arguments, f"--rootdir={FOLDER.parent.parent}"], plugins=[hunt])
    return hunt.report()


sys.exit(main())
