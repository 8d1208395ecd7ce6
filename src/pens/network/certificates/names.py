# SPDX-License-Identifier: Apache-2.0
"""Names of members: which are allowed, the number of each, and the DNS names in its certificate."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from pens.errors import CertificateError
from pens.printable import printable
from pens.protocol.messages import PeerId

RESERVED = "pens.internal"
"""The ending of the DNS names by which members know each other; no host may have it."""
ANY_MEMBER = f"member.{RESERVED}"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")


def is_allowed(name: str) -> bool:
    """Whether a member may have this name."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def allowed_names(names: Sequence[str]) -> list[str]:
    """Names that members may have, most like these: "Clinic Süd" → clinic-sud. Where two would become the same, each of
    them gets its place, counted from 0."""
    plain = [_plain(name) for name in names]
    counts = Counter(plain)
    numbered = [name if counts[name] == 1 else f"{name[:50]}-{place}".lstrip("-") for place, name in enumerate(plain)]
    return numbered if len(set(numbered)) == len(names) else [f"peer-{place}" for place in range(len(names))]


def _plain(name: str) -> str:
    letters = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"\.\.+", ".", re.sub(r"[^a-z0-9._-]+", "-", letters)).strip("-._")[:63].rstrip("-._") or "peer"


def check_name(name: str) -> str:
    """Return `name` if a member may have it."""
    if not is_allowed(name):
        raise CertificateError(
            f"name '{printable(name)}': a member's name has 1 to 63 lower-case letters, digits, '-', '.' and '_', "
            "begins and ends with a letter or digit, and has no two dots together"
        )
    return name


def peer_id(name: str) -> PeerId:
    """The number of the peer of this name: 63 bits of a hash, the same at all members without a directory."""
    return PeerId(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1)


def exact_dns_name(name: str, serial: int) -> str:
    """The DNS name of one certificate: a caller that demands it of a server demands the key of that certificate."""
    return f"{name}.{serial:x}.serial.{RESERVED}"


def is_reserved(host: str) -> bool:
    """Whether a host has the ending of members' own names; DNS makes no difference of case, nor of a dot at the end."""
    return host.casefold().rstrip(".").endswith(RESERVED)
