# SPDX-License-Identifier: Apache-2.0
"""What is odd about own data, but may be meant: it is told, and not refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from pens.data.scenarios import Federation

_MOST_NAMES = 4  # that a sentence lists


def doubts(federation: Federation, has_classes: bool = True) -> list[str]:
    """Sentences about own data that their user should read. `has_classes`: whether targets are classes."""
    found = [
        f"the {what} {_listed(names)} differ in capitals and spaces alone: if they are one, give them one name"
        for what, all_names in (("peers", federation.peer_names), ("classes", federation.class_names))
        for names in _alike(all_names)
    ]
    if has_classes and (only := _only_class(federation)) is not None:
        found.append(f"all samples are of the class {only}: there is nothing to tell apart")
    return found


def _alike(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that are the same but for capitals and spaces."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        groups["".join(name.split()).casefold()].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:_MOST_NAMES]))
    return shown + (f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else "")


def _only_class(federation: Federation) -> str | None:
    """The class of all samples; None where there are several."""
    first = federation.peers[0].train.y.flat[0]
    parts = [*(part for peer in federation.peers for part in (peer.train, peer.val)), *federation.tests]
    if any((part.y != first).any() for part in parts):
        return None
    return repr(federation.class_names[first]) if federation.class_names else str(first)
