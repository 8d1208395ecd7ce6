# SPDX-License-Identifier: Apache-2.0
"""The command `pens`, and the check that the package `pens` is the one of this distribution, `pens-fl`.

Another project, about reconstructions of past climates, is distributed as `pens` and installs a package `pens`, too. In
one environment the files of both end up in the same folder, and the one installed last wins. This module is named after
the distribution, so that it survives where the other package was installed over ours or is found before it, and can say
so. It imports nothing but the standard library.
"""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

REMEDY = (
    "Remove both with `pip uninstall pens pens-fl`, then install pens-fl again, in an environment without the "
    "distribution pens."
)


def why_not_ours() -> str | None:
    """One sentence and a remedy where `import pens` would not import the package of this distribution, else None."""
    spec = find_spec("pens")
    if spec is None:
        return f"The package pens of the distribution pens-fl is missing. {REMEDY}"
    if spec.origin is None or spec.loader is None:
        where = ", ".join(spec.submodule_search_locations or ())
        return f"The package pens in {where} has lost its __init__.py, as `pip uninstall pens` leaves it. {REMEDY}"
    source = getattr(spec.loader, "get_source", lambda name: None)("pens")
    if source is None or __name__ in source:  # ours imports this module
        return None
    return (
        f"The package pens in {Path(spec.origin).parent} belongs to another project, the distribution pens, which "
        f"was installed over pens-fl or is found before it. {REMEDY}"
    )


def warn_if_shared(init_file: str) -> None:
    """Warn where another distribution claims the files of the package that begins with `init_file`: whatever installs,
    upgrades or removes that distribution breaks this package."""
    package = Path(init_file).resolve().parent
    site = package.parent
    for metadata in (*site.glob("pens-*.dist-info"), *site.glob("pens-*.egg-info")):
        if _claims(metadata):
            words = f"The distribution {metadata.stem} and pens-fl have installed their files into one folder"
            warnings.warn(f"{words}, {package}. {REMEDY}", stacklevel=3)


def _claims(metadata: Path) -> bool:
    """Whether the distribution lists our first file among its own."""
    from importlib.metadata import PathDistribution

    files = PathDistribution(metadata).files or ()
    return any(file.as_posix() == "pens/__init__.py" for file in files)


def main() -> object:
    """The command `pens`; one sentence and exit status 2 where the package of that name is not ours."""
    wrong = why_not_ours()
    if wrong:
        print(f"error {wrong}", file=sys.stderr)
        sys.exit(2)
    from pens.command_line.main import main as command

    return command()
