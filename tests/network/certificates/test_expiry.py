# SPDX-License-Identifier: Apache-2.0
"""When a person is warned that something ends: worked out by hand for a year, a month and a day."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pens.network.certificates.expiry import Term, Warnings

NOW = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def term(valid: timedelta, kind: str = "certificate") -> Term:
    return Term(kind, "alice", NOW, NOW + valid)  # type: ignore[arg-type]


def warned_at(it: Term, step: timedelta, until: timedelta) -> list[float]:
    """Days that are left at each warning, where somebody looks at every step."""
    warnings, left = Warnings(), []
    moment = it.begins
    while moment <= it.ends + until:
        left += [one.left(moment) / DAY for one in warnings.due([it], moment)]
        moment += step
    return left


def test_a_years_certificate_is_warned_of_at_30_14_7_3_and_1_days_and_then_daily() -> None:
    # looked at every six hours: below one day at 0.75, then as each further day is over
    assert warned_at(term(365 * DAY), DAY / 4, 3 * DAY) == [30, 14, 7, 3, 1, 0.75, -0.25, -1.25, -2.25]


def test_a_months_list_is_warned_of_in_its_last_third() -> None:
    assert warned_at(term(30 * DAY), DAY / 4, DAY) == [10, 7, 3, 1, 0.75, -0.25]


def test_what_is_valid_for_a_day_is_warned_of_eight_hours_before() -> None:
    assert warned_at(term(DAY), timedelta(hours=1), timedelta(hours=2)) == pytest.approx([8 / 24, -1 / 24])


def test_what_was_renewed_is_warned_of_anew_and_others_are_counted_for_themselves() -> None:
    old, new, other = term(365 * DAY), term(400 * DAY), Term("authority", "ours", NOW, NOW + 370 * DAY)
    warnings, day = Warnings(), NOW + 360 * DAY
    assert warnings.due([old, other], day) == [old, other]
    assert warnings.due([old, other], day) == []
    assert warnings.due([new, other], day) == []
    assert warnings.due([new, other], NOW + 371 * DAY) == [new, other]


def test_the_words_say_when_and_what_to_do() -> None:
    it = term(365 * DAY, "revocation list")
    assert it.words(it.ends - 3.5 * DAY).startswith(
        "the revocation list of alice ends at 2031-01-01 00:00 UTC, in 3 days: `pens certs refresh`"
    )
    assert "in 1 day:" in it.words(it.ends - DAY)
    assert "in 2 hours:" in it.words(it.ends - timedelta(hours=1.5))
    assert "ended at 2031-01-01 00:00 UTC: " in it.words(it.ends)


def test_degraded_begins_with_the_days_asked_for_but_not_before_the_last_third() -> None:
    year, day = term(365 * DAY), term(DAY)
    assert [year.is_ending(year.ends - left, 7) for left in (8 * DAY, 7 * DAY, -DAY)] == [False, True, True]
    assert [day.is_ending(day.ends - left, 7) for left in (DAY / 2, DAY / 3)] == [False, True]
