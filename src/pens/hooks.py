# SPDX-License-Identifier: Apache-2.0
"""Calls of code that others write: an error in it becomes a sentence that says which function failed, and where.

A part of pens itself that fails is a bug, and keeps its traceback.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from pens.errors import PensError, SettingsError

_HERE = str(Path(__file__).parent)
_CYTHON = (".pyx", ".pxd", ".pxi")  # whose frames name files without their folders
_LIBRARIES = ("site-packages", "dist-packages", str(Path(sys.base_prefix) / "lib"))


def is_ours(code: object) -> bool:
    """Whether a class or function is part of pens."""
    return f"{getattr(code, '__module__', '')}.".startswith("pens.")


@contextmanager
def calling(whose: str, part: object, function: str) -> Iterator[None]:
    """Around a call of a part's function. `whose`: what errors call the part, "method 'mine'"."""
    try:
        yield
    except PensError:
        raise
    except Exception as error:
        if is_ours(part if isinstance(part, type) else type(part)):
            raise
        raise SettingsError(f"{whose}: its {function} failed: {told(error)}") from error


def refuse_result(whose: str, function: str, result: object, remedy: str) -> NoReturn:
    """Refuse what a part's function returned. `remedy`: what it has to return, in words."""
    text = repr(result)
    shown = f"{text[:60]} …" if len(text) > 60 else text
    what = shown if result is None else f"{shown}, {a_type(result)}"
    raise SettingsError(f"{whose}: its {function} returned {what}: {remedy}")


def a_type(of: object) -> str:
    """The type of an object in words: "an int"."""
    name = type(of).__name__
    return f"{'an' if name.startswith((*'aeioAEIO', 'Up', 'nd')) else 'a'} {name}"  # an Update, an ndarray


def plain_numbers(given: Any) -> tuple[float, ...] | None:
    """Numbers of any type, in a sequence or array, as Python's own; None where they are none."""
    if isinstance(given, str | bytes | Mapping | set):
        return None
    try:
        found = list(given)
        return None if any(isinstance(each, str) for each in found) else tuple(map(float, found))
    except (TypeError, ValueError, RuntimeError):  # the last one: a tensor of several numbers
        return None


def told(error: BaseException) -> str:
    """An error in words, with the place in the user's own code where that can be told."""
    said = str(error).partition("\n\nFor further information")[0]  # what pydantic adds
    words = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return words + place_of(error)


def place_of(error: BaseException) -> str:
    """The place in the user's own code where an error came from, in brackets; empty where that cannot be told."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


def _is_own(file: str) -> bool:
    foreign = file.startswith((_HERE, "<")) or file.endswith(_CYTHON)
    return not foreign and not any(library in file for library in _LIBRARIES)
