# SPDX-License-Identifier: Apache-2.0
"""Terms are compared part by part, each case by hand; versions of the protocol; text of others is harmless."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pens.network.members.agreement import (
    Agreement,
    Compared,
    Heard,
    compare,
    differing,
    fingerprint,
    why_apart,
)
from pens.network.transport import versions
from pens.network.transport.terms import MOST_ITEMS, Part, Terms, plain
from pens.network.transport.versions import FIRST, Feature, Range, Version, refusal, spoken

MINE = Terms(
    parts=(
        Part.of("tensors", ["out.weight 3 × 16 float32", "out.bias 3 float32"]),
        Part.of("outputs", ["well", "ill"]),
        Part.of("task", ["classification"]),
        Part.of("settings", ["gossip.n_peers = 2"]),
    )
)


def changed(part: str, *items: str) -> Terms:
    return replace(MINE, parts=tuple(Part.of(part, items) if p.name == part else p for p in MINE.parts))


def test_equal_terms_agree() -> None:
    compared = compare(MINE, MINE)
    assert [c.part for c in compared] == ["protocol", "wire", "tensors", "outputs", "task", "settings"]
    assert not any(c.difference for c in compared)
    assert (why_apart(compared), differing(compared)) == (None, None)


@pytest.mark.parametrize(
    ("theirs", "why", "difference"),
    [
        (changed("outputs", "ill", "well"), "outputs: 'well' here, 'ill' there", None),  # the same shapes
        (
            changed("tensors", "out.weight 3 × 16 float32", "out.bias 5 float32"),
            "tensors: 'out.bias 3 float32' here, 'out.bias 5 float32' there",
            None,
        ),
        (changed("outputs", "well"), "outputs: 'ill' here, nothing more there", None),
        (
            changed("settings", "gossip.n_peers = 3"),
            None,
            "settings: 'gossip.n_peers = 2' here, 'gossip.n_peers = 3' there",
        ),
        (replace(MINE, parts=MINE.parts[:1]), None, None),  # what is not told is not compared
        (replace(MINE, parts=(*MINE.parts, Part.of("tensors of tomorrow", ["1"]))), None, None),
        (replace(MINE, sends="fp4"), "wire: it sends fp4, which this member does not understand", None),
        (replace(MINE, reads=("int8",)), "wire: it does not understand fp32, which this member sends", None),
        (replace(MINE, sends="int8", software="9"), None, None),  # each may choose its form
        (
            replace(MINE, versions=Range(3, 4)),
            "protocol: it understands versions 3 to 4 of the protocol, this member version 2: install a newer version "
            "of pens on this machine",
            None,
        ),
        (
            Terms(FIRST),
            "protocol: it understands version 1 of the protocol, this member version 2, and version 1 has no signed "
            "membership records: install a newer version of pens on its machine",
            None,
        ),
    ],
)
def test_what_differs_is_said_in_words(theirs: Terms, why: str | None, difference: str | None) -> None:
    compared = compare(MINE, theirs)
    assert (why_apart(compared), differing(compared)) == (why, difference)
    assert (why_apart(compare(theirs, MINE)) is None) == (why is None), "both sides come to the same result"


def test_parts_that_are_equal_as_far_as_they_are_shown_may_differ() -> None:
    items = [f"layer{n}.weight" for n in range(1000)]
    one, other = Part.of("tensors", items), Part.of("tensors", [*items[:-1], "another"])
    assert one.items == other.items
    assert 0 < len(one.items) <= MOST_ITEMS
    found = why_apart(compare(Terms(parts=(one,)), Terms(parts=(other,))))
    assert found == "tensors: the parts that are too long to show differ"
    assert Part.of("x", ["ab", "c"]).digest != Part.of("x", ["a", "bc"]).digest, "items keep their ends"


def test_the_fingerprint_is_that_of_the_necessary_parts() -> None:
    assert fingerprint(MINE) == fingerprint(changed("settings", "gossip.n_peers = 3"))
    assert fingerprint(MINE) == fingerprint(replace(MINE, parts=MINE.parts[::-1], sends="int8"))
    assert fingerprint(MINE) != fingerprint(changed("outputs", "ill", "well"))


def test_text_of_others_is_cut_and_escaped() -> None:
    told = Part.told("ta\nsk" + "x" * 99, bytes(32), ["\x1b[2J", "‮abc", "ü" * 999, *["y" * 160] * 999])
    assert told.name.startswith("ta\\nsk")
    assert told.items[:2] == ("\\x1b[2J", "\\u202eabc")
    assert len(told.name) <= 40
    assert max(map(len, told.items)) <= 160
    assert sum(map(len, told.items)) <= 4096
    assert plain("a" * 10**6, 5) == "aaaa…"
    found = why_apart(
        compare(Terms(parts=(Part.of("task", ["a"]),)), Terms(parts=(Part.told("task", bytes(32), ["b" * 999]),)))
    )
    assert found is not None
    assert len(found) < 100


def test_members_speak_the_highest_version_that_both_understand() -> None:
    assert spoken(Range(1, 2), Range(1, 2)) == 2
    assert spoken(Range(1, 1), Range(1, 2)) == 1
    assert spoken(Range(2, 5), Range(1, 2)) == 2
    assert spoken(Range(3, 5), Range(1, 2)) is None
    assert Feature.AGREEMENT in versions.features(2) - versions.features(1)


def test_a_version_without_what_this_member_needs_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as the table says that a feature is needed, members that lack it are told so; no other code changes."""
    monkeypatch.setattr(versions, "NEEDED", frozenset({Feature.AGREEMENT}))
    assert refusal(Range(1, 1), Range(2, 2)) == (
        "it understands version 1 of the protocol, this member version 2, and version 1 has no agreement before models "
        "are exchanged: install a newer version of pens on its machine"
    )
    assert min(v.number for v in versions.VERSIONS if v.has >= frozenset({Feature.AGREEMENT})) == 2
    assert isinstance(versions.VERSIONS[0], Version)


def test_terms_count_for_the_member_that_told_them_alone_and_a_trial_for_nobody() -> None:
    told: list[Heard] = []
    agreement = Agreement(MINE, told.append)
    other = changed("task", "regression")
    assert agreement.fits("b")
    agreement.hear("b", replace(other, trial=True))
    assert agreement.fits("b")
    agreement.hear("b", other)
    assert [agreement.fits(name) for name in "bc"] == [False, True]
    agreement.hear("b", MINE)
    assert agreement.fits("b")
    agreement.hear("c", replace(MINE, versions=Range(7, 9)))
    assert "install a newer version" in str(agreement.refusal("c"))
    agreement.hear("c", MINE)
    assert (agreement.refusal("c"), agreement.fits("c")) == (None, True)
    agreement.hear("c", None)  # it came back with the version of before
    assert "has no signed membership records" in str(agreement.refusal("c"))
    assert not agreement.fits("c")
    assert [(heard.member, heard.why is None, heard.trial) for heard in told] == [
        ("b", False, True),
        ("b", False, False),
        ("b", True, False),
        ("c", False, False),
        ("c", True, False),
        ("c", False, False),
    ]
    for number in range(5000):
        agreement.hear(f"m{number}", other)
    assert len(agreement._versions) == len(agreement._apart) == 4096


def test_a_comparison_keeps_apart_only_where_it_must() -> None:
    assert not Compared("settings", False, "x").keeps_apart
    assert Compared("task", True, "x").keeps_apart
    assert not Compared("task", True, None).keeps_apart
