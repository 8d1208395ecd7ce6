# SPDX-License-Identifier: Apache-2.0
"""The paper's decisions, each rule by its own words."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pens.protocol.messages import PeerId
from pens.protocol.policies import (
    EarlyStopping,
    SelectionRule,
    Tally,
    Trials,
    _sigmoid,
    admitted,
    choose_neighbours,
    is_win,
    select_top_m,
    upper_group,
)

losses = st.lists(st.one_of(st.floats(0, 10), st.just(math.nan), st.just(math.inf)), min_size=1, max_size=12)


def peers(*numbers: int) -> list[PeerId]:
    return [PeerId(n) for n in numbers]


@given(losses, st.integers(1, 12))
def test_the_top_m_are_the_lowest_losses(values: list[float], m: int) -> None:
    senders = peers(*range(len(values)))
    best = select_top_m(senders, values, m)
    assert len(best) == len(set(best)) == min(m, len(values))
    worst_chosen = max((values[i] for i in best if not math.isnan(values[i])), default=-math.inf)
    for i in set(range(len(values))) - set(best):
        assert math.isnan(values[i]) or values[i] >= worst_chosen


def test_the_top_two_of_four_by_hand() -> None:
    """SELECT_TOP_M: positions in the order of the losses, whoever sent them."""
    assert select_top_m(peers(7, 1, 5, 3), [0.4, 0.9, 0.1, 0.2], 2) == [2, 3]
    assert select_top_m(peers(7, 1, 5, 3), [0.4, 0.9, 0.1, 0.2], 1) == [2]
    assert select_top_m(peers(7, 1), [0.4, 0.1], 5) == [1, 0]


def test_ties_and_bad_losses_have_an_order() -> None:
    assert select_top_m(peers(5, 3, 4), [1.0, 1.0, 1.0], 2) == [0, 1]  # as they were received
    assert select_top_m(peers(5, 3, 4), [1.0, 0.5, 1.0], 2) == [1, 0]
    assert select_top_m(peers(1, 2, 3), [math.nan, math.inf, 2.0], 1) == [2]


def tally(selected: dict[int, int], sampled: dict[int, int], samplings: int) -> Tally:
    return Tally(
        Counter({PeerId(p): c for p, c in selected.items()}),
        Counter({PeerId(p): c for p, c in sampled.items()}),
        samplings,
    )


@pytest.mark.parametrize(
    ("offset", "neighbours"),
    [
        (0.0, (5, 6)),  # 4.04 expected: five selections make a neighbour
        (-1.0, (4, 5, 6)),  # the authors' code, count > m·T / (k − 1) − 1: four do
        (1.0, (6,)),
    ],
)
def test_the_expected_count_of_the_papers_setting_and_its_offset(offset: float, neighbours: tuple[int, ...]) -> None:
    """m = 2, T = 200 samplings, k = 100 peers: 2 · 200 / 99 = 4.04. Each peer has as many selections as its number."""
    rule = SelectionRule(m=2, n_sampled=10, num_others=99, expected="uniform", offset=offset)
    counts = {number: number for number in range(1, 7)}
    assert choose_neighbours(tally(counts, dict.fromkeys(counts, 20), 200), rule).neighbours == neighbours


def test_the_offset_counts_for_received_models_too() -> None:
    """20 comparisons with m / n_sampled = 2 / 10: 4 expected. Five are more and four are not; with −1 four are, too."""
    counts, compared = {3: 3, 4: 4, 5: 5}, dict.fromkeys((3, 4, 5), 20)
    for offset, neighbours in ((0.0, (5,)), (-1.0, (4, 5))):
        rule = SelectionRule(m=2, n_sampled=10, num_others=99, expected="received", offset=offset)
        assert choose_neighbours(tally(counts, compared, 200), rule).neighbours == neighbours


def test_a_peer_that_finds_nobody_takes_the_most_selected_or_trains_alone() -> None:
    """Three others, two samplings of m = 1: 2/3 expected, and with an offset of 2 nobody has that many."""
    counts = tally({1: 1, 2: 2}, {1: 2, 2: 2, 3: 2}, 2)
    most = choose_neighbours(counts, SelectionRule(1, 2, 3, "uniform", offset=2.0))
    assert (most.neighbours, most.fallback) == ((2,), True)
    alone = choose_neighbours(counts, SelectionRule(1, 2, 3, "uniform", offset=2.0, nobody_found="alone"))
    assert (alone.neighbours, alone.fallback) == ((), True)


def test_neighbours_are_selected_strictly_more_often_than_uniform_sampling_would() -> None:
    # 20 samplings of m = 2 among 10 others: expected 4 each
    rule = SelectionRule(m=2, n_sampled=5, num_others=10, expected="uniform")
    found = choose_neighbours(tally({1: 5, 2: 4, 3: 3, 7: 28}, {}, 20), rule)
    assert found.neighbours == (1, 7)
    assert not found.fallback


def test_neighbours_are_selected_strictly_more_often_than_received_models_would() -> None:
    # each comparison has an expectation of m / n_sampled = 0.2
    rule = SelectionRule(m=2, n_sampled=10, num_others=99, expected="received")
    found = choose_neighbours(tally({1: 2, 2: 1, 3: 3, 4: 1}, {1: 5, 2: 5, 3: 15, 4: 4}, 20), rule)
    assert found.neighbours == (1, 4)


@given(st.integers(1, 60), st.integers(2, 12), st.data())
def test_both_rules_agree_where_everybody_is_heard_equally_often(
    times: int, n_sampled: int, data: st.DataObject
) -> None:
    m = data.draw(st.integers(1, n_sampled - 1))
    others = n_sampled * data.draw(st.integers(1, 4))
    samplings = times * others // n_sampled
    selected = {p: data.draw(st.integers(0, times)) for p in range(others)}
    counts = tally({p: c for p, c in selected.items() if c}, dict.fromkeys(range(others), times), samplings)
    uniform = choose_neighbours(counts, SelectionRule(m, n_sampled, others, "uniform"))
    received = choose_neighbours(counts, SelectionRule(m, n_sampled, others, "received"))
    assert uniform == received


def likelihood_of_cut(hits: Sequence[int], trials: int, cut: int) -> float:
    """The logarithm, of parting sorted counts there, each part with its own rate."""
    total = 0.0
    for part in (hits[:cut], hits[cut:]):
        often, all_ = sum(part), trials * len(part)
        total += sum(n * math.log(n / all_) for n in (often, all_ - often) if n)
    return total


@given(st.integers(2, 30), st.integers(2, 60), st.integers(10, 40), st.data())
def test_two_groups_that_are_far_apart_are_told_apart(
    num_often: int, num_seldom: int, trials: int, data: st.DataObject
) -> None:
    """Unless another parting explains the counts as well: 33, 33, 33 of 33 on one side and 20, 3, 0 on the other."""
    often = data.draw(st.lists(st.integers(math.ceil(0.6 * trials), trials), min_size=num_often, max_size=num_often))
    seldom = data.draw(st.lists(st.integers(0, trials // 10), min_size=num_seldom, max_size=num_seldom))
    hits = sorted([*often, *seldom])
    likelihoods = {cut: likelihood_of_cut(hits, trials, cut) for cut in range(1, len(hits))}
    assume(likelihoods.pop(num_seldom) > max(likelihoods.values()) + 2)
    found = upper_group([*often, *seldom], [trials] * (num_often + num_seldom))
    assert found == [True] * num_often + [False] * num_seldom


counts_of_peers = st.lists(st.integers(1, 40).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1)


@given(counts_of_peers, st.randoms())
def test_groups_do_not_depend_on_the_order_of_peers(counts: list[tuple[int, int]], random: Random) -> None:
    mixed = random.sample(counts, len(counts))
    found, again = (dict(zip(some, upper_group(*zip(*some, strict=True)), strict=True)) for some in (counts, mixed))
    assert found == again


@given(counts_of_peers)
def test_whoever_is_selected_more_often_of_as_many_comparisons_is_in_no_lower_group(
    counts: list[tuple[int, int]],
) -> None:
    found = upper_group(*zip(*counts, strict=True))
    for (hits, trials), is_in in zip(counts, found, strict=True):
        for (others, of), other_is_in in zip(counts, found, strict=True):
            assert not (trials == of and hits > others and other_is_in) or is_in


@given(st.integers(1, 50), st.integers(1, 30), st.data())
def test_where_all_are_alike_all_are_in(peers: int, trials: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(1, trials))
    assert all(upper_group([hits] * peers, [trials] * peers))
    assert not any(upper_group([0] * peers, [trials] * peers))


def two_groups(counts: Sequence[tuple[int, int]]) -> tuple[list[float], float]:
    """A slow twin of `upper_group`, one peer after the other: how probably each is in the upper group, and by how much
    two groups explain the counts better than one, beyond what two more parameters are worth."""

    def rate(pairs: Sequence[tuple[float, float]]) -> float:
        return (sum(h for h, _ in pairs) + 0.5) / (sum(t for _, t in pairs) + 1)

    def likelihood(hits: float, trials: float, p: float) -> float:
        return hits * math.log(p) + (trials - hits) * math.log(1 - p)

    def explained(cut: float) -> float:
        parts = [[c for c in counts if (c[0] / c[1] >= cut) == side] for side in (True, False)]
        return sum(likelihood(*c, rate(part)) for part in parts for c in part)

    cut = max(sorted({h / t for h, t in counts})[1:], key=lambda c: (explained(c), c))
    upper = [0.95 if h / t >= cut else 0.05 for h, t in counts]
    for _ in range(200):
        share = min(max(sum(upper) / len(upper), 0.001), 0.999)
        often = rate([(u * h, u * t) for u, (h, t) in zip(upper, counts, strict=True)])
        seldom = rate([((1 - u) * h, (1 - u) * t) for u, (h, t) in zip(upper, counts, strict=True)])
        above = [math.log(share) + likelihood(*c, often) for c in counts]
        below = [math.log(1 - share) + likelihood(*c, seldom) for c in counts]
        before, upper = upper, [1 / (1 + math.exp(min(b - a, 50))) for a, b in zip(above, below, strict=True)]
        if max(abs(u - o) for u, o in zip(upper, before, strict=True)) < 1e-6:
            break
    two = sum(math.log(math.exp(a) + math.exp(b)) for a, b in zip(above, below, strict=True))
    one = sum(likelihood(*c, rate(counts)) for c in counts)
    return upper, two - one - math.log(len(counts))


@settings(max_examples=60)
@given(st.integers(2, 12), st.integers(5, 25), st.data())
def test_two_groups_are_those_of_a_plain_computation(peers: int, trials: int, data: st.DataObject) -> None:
    def draw() -> tuple[int, int]:
        of = data.draw(st.integers(trials - 4, trials))
        return data.draw(st.one_of(st.integers(0, min(2, of)), st.integers(of // 3, of))), of

    counts = [draw() for _ in range(peers)]
    assume(len({hits / of for hits, of in counts}) > 1 and any(hits for hits, _ in counts))
    upper, gain = two_groups(counts)
    assume(abs(gain) > 1e-6 and all(abs(u - 0.5) > 1e-3 for u in upper))
    expected = [u > 0.5 for u in upper] if gain > 0 else [True] * peers
    assert upper_group(*zip(*counts, strict=True)) == expected


def test_two_groups_that_hardly_differ_are_one() -> None:
    """Five of ten and six of ten are luck; one of ten and nine of ten are not. Peers that were compared and never
    selected belong to the lower group."""
    assert upper_group([5, 6, 5, 6, 5, 6], [10] * 6) == [True] * 6
    assert upper_group([1, 9, 0, 9, 1, 9], [10] * 6) == [False, True] * 3
    rule = SelectionRule(m=2, n_sampled=10, num_others=6, expected="received", by="groups")
    counted = tally({3: 6, 1: 5, 4: 6}, dict.fromkeys((6, 5, 4, 3, 2, 1), 10), 6)
    assert choose_neighbours(counted, rule).neighbours == (1, 3, 4)


@pytest.mark.parametrize(
    ("counts", "upper"),
    [
        ([(0, 7), (2, 6), (8, 12)], [2]),
        ([(4, 26), (10, 29), (4, 27), (12, 31), (7, 32), (0, 30), (6, 31), (4, 27)], [0, 1, 2, 3, 4, 6, 7]),
        ([(8, 26), (2, 22), (8, 21), (18, 25), (13, 27)], [3, 4]),
        ([(6, 26), (5, 30), (12, 26), (10, 26), (14, 27), (11, 25)], [2, 3, 4, 5]),
    ],
)
def test_groups_that_lie_close_are_parted_where_the_likelihood_says(
    counts: list[tuple[int, int]], upper: list[int]
) -> None:
    """Counts in which a slip of the computation shows: where it begins, when it ends, how likelihoods are added."""
    found = upper_group(*zip(*counts, strict=True))
    assert [place for place, is_in in enumerate(found) if is_in] == upper
    probably, gain = two_groups(counts)
    assert gain > 0
    assert [place for place, p in enumerate(probably) if p > 0.5] == upper


def test_a_group_counts_as_no_more_than_999_of_1000() -> None:
    """2045 peers were selected twice of two times, one never. One rate, 4090.5/4093, explains that by
    4090 log(4090.5/4093) + 2 log(2.5/4093) = −17.30.

    Two rates, (4090 + 0.5)/(4090 + 1) and (0 + 0.5)/(2 + 1), explain it by 2045 (log s + 2 log(4090.5/4091)) +
    log(1 − s) + 2 log(2.5/3), where s is the share of the upper group. With s = 2045/2046 that is −9.49, 7.81 better,
    which is more than two parameters are worth, log 2046 = 7.62. But a share is 0.999 at most: −9.82, 7.48 better, and
    one peer among 2046 is no group of its own."""
    assert upper_group([2] * 2045 + [0], [2] * 2046) == [True] * 2046


def test_the_logistic_function_by_hand() -> None:
    assert _sigmoid(0.0) == 0.5
    assert _sigmoid(1.0) == pytest.approx(1 / (1 + math.exp(-1)))
    assert _sigmoid(-1000.0) == pytest.approx(0, abs=1e-20)
    assert _sigmoid(1000.0) == 1.0


def test_where_all_are_alike_those_never_selected_are_neighbours_as_well() -> None:
    """One selection of three comparisons, none of three: nothing tells them apart. Nobody knows of peer 3."""
    rule = SelectionRule(m=1, n_sampled=2, num_others=3, expected="uniform", by="groups")
    assert choose_neighbours(tally({1: 1}, {1: 3, 2: 3}, 3), rule).neighbours == (1, 2)


@pytest.mark.parametrize("expected", ["uniform", "received"])
def test_the_authors_cut_off_is_one_selection_lower(expected: str) -> None:
    """count > m · S / (k − 1) − 1 (docs/decisions/0025): of 8 samplings of m = 1 among 4 others 2 are expected, and of
    4 comparisons with n_sampled = 2, as well. Two selections are more than one, one is not; where less than one is
    expected, none at all are enough for a peer that was heard."""
    rule = SelectionRule(m=1, n_sampled=2, num_others=4, expected=expected, offset=-1)  # type: ignore[arg-type]
    assert choose_neighbours(tally({1: 3, 2: 2, 3: 1}, dict.fromkeys((1, 2, 3, 4), 4), 8), rule).neighbours == (1, 2)
    assert choose_neighbours(tally({1: 1}, {1: 1, 2: 1}, 2), rule).neighbours == (1, 2)
    uneven = Tally()
    for chosen in (1, 1, 2):
        uneven.add(peers(1, 2, 3), peers(chosen))  # chance selects each of them once
    uneven.add(peers(1, 3, 4, 5), peers(1))
    found = choose_neighbours(uneven, SelectionRule(1, 2, 4, "received", offset=1))
    assert found.neighbours == (1,)  # 3 > 1 + 1/4 + 1, and 1 < 1 + 1
    assert not found.fallback


def test_neighbours_may_be_the_upper_group() -> None:
    rule = SelectionRule(m=2, n_sampled=10, num_others=6, expected="uniform", by="groups")
    found = choose_neighbours(tally({1: 9, 2: 8, 3: 3, 4: 2}, dict.fromkeys(range(1, 7), 20), 60), rule)
    assert found.neighbours == (1, 2)
    assert not found.fallback
    assert choose_neighbours(tally({}, {1: 5}, 5), rule).fallback


def test_who_finds_nobody_takes_those_selected_most() -> None:
    rule = SelectionRule(m=2, n_sampled=3, num_others=3, expected="uniform")
    found = choose_neighbours(tally({5: 1, 6: 2, 7: 2}, {}, 3), rule)
    assert found.neighbours == (6, 7)
    assert found.fallback
    assert choose_neighbours(Tally(), rule).neighbours == ()


def stopping(patience: int = 3, window: int = 2, stop_on: str = "accuracy") -> EarlyStopping:
    return EarlyStopping(stop_on, window, patience)  # type: ignore[arg-type]


def test_training_stops_when_the_windows_mean_stays_flat() -> None:
    rule = stopping()
    values = [0.1, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6]
    stopped = []
    for value in values:
        rule.observe(1.0, value)
        stopped.append(rule.stopped)
    assert stopped == [False, False, False, False, False, False, True]


def test_a_late_improvement_resets_the_patience() -> None:
    rule = stopping()
    for value in (0.5, 0.5, 0.5, 0.9, 0.9, 0.1, 0.1):
        rule.observe(1.0, value)
    assert not rule.stopped


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30), st.integers(1, 4))
def test_the_best_round_is_the_first_whose_window_has_the_highest_mean(values: list[float], window: int) -> None:
    rule = stopping(patience=100, window=window)
    best = [i for i, value in enumerate(values) if rule.observe(0.0, value)][-1]
    means = [math.fsum(part := values[max(0, i + 1 - window) : i + 1]) / len(part) for i in range(len(values))]
    assert means[best] == pytest.approx(max(means), abs=1e-8)
    assert all(mean < max(means) for mean in means[:best])


def test_loss_can_decide_instead() -> None:
    rule = stopping(stop_on="loss")
    assert [rule.observe(loss, 0.5) for loss in (2.0, 1.0, 2.5, 0.1)] == [True, True, False, True]


@pytest.mark.parametrize("count", [1, 3, 7])
def test_equal_results_never_count_as_progress(count: int) -> None:
    rule = stopping(patience=count, window=5)
    for _ in range(count + 1):
        rule.observe(0.0, 0.1)
    assert rule.stopped


def test_early_stopping_round_by_round() -> None:
    """Section 5.4. A window of 2 and a patience of 2, by accuracy. Means: 0.2, 0.3, 0.5, 0.45, 0.4: the third round is
    the best, and two rounds later it stops."""
    rule = stopping(patience=2, window=2)
    accuracies = (0.2, 0.4, 0.6, 0.3, 0.5)
    assert [rule.observe(9.0, accuracy) for accuracy in accuracies] == [True, True, True, False, False]
    assert rule.best == pytest.approx(0.5)
    assert rule.rounds_since_best == 2
    assert rule.stopped
    assert rule.recent == [0.3, 0.5]


def test_a_result_that_is_no_number_is_no_progress_and_stays_in_the_window() -> None:
    rule = stopping(patience=9, window=2, stop_on="loss")
    assert [rule.observe(loss, 0.5) for loss in (1.0, math.nan, 0.1, 0.1)] == [True, False, False, True]
    assert rule.recent == [-0.1, -0.1]
    rule = stopping(patience=9, window=2)
    assert [rule.observe(0.0, accuracy) for accuracy in (math.nan, 0.1, 0.1)] == [True, True, True]
    rule = stopping(patience=9, window=2, stop_on="loss")
    assert [rule.observe(loss, 0.5) for loss in (math.inf, -math.inf)] == [True, True]
    assert rule.best == -math.inf


def test_no_loss_is_better_than_an_infinitely_low_one() -> None:
    """A window of 1, so that each result stands for itself: 1, −∞, 0."""
    rule = stopping(patience=9, window=1, stop_on="loss")
    assert [rule.observe(loss, 0.5) for loss in (1.0, -math.inf, 0.0)] == [True, True, False]
    assert rule.best == math.inf


# --- where samplings are not all of one size --------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(1, 6), min_size=3, max_size=3, unique=True), min_size=1, max_size=20))
def test_samplings_of_one_size_need_no_sizes(samplings: list[list[int]]) -> None:
    """Counting each sampling by its own size changes nothing where that is n_sampled."""
    rule = SelectionRule(m=1, n_sampled=3, num_others=6, expected="received")
    counted = Tally()
    for senders in samplings:
        counted.add(peers(*senders), peers(senders[0]))
    plain = Tally(counted.selected, counted.sampled, counted.samplings)
    assert choose_neighbours(counted, rule) == choose_neighbours(plain, rule)
    assert choose_neighbours(Tally.restored(counted.state()), rule) == choose_neighbours(counted, rule)
    assert all(counted.expected(p, rule) == pytest.approx(counted.sampled[p] / 3) for p in counted.sampled)


def test_a_small_sampling_proves_little() -> None:
    rule = SelectionRule(m=1, n_sampled=4, num_others=4, expected="received")
    found = Tally()
    for _ in range(4):
        found.add(peers(1, 2), peers(1))  # by chance, every second time
    assert choose_neighbours(found, rule).neighbours == (1,)
    for _ in range(4):
        found.add(peers(1, 2), peers(2))
    assert choose_neighbours(found, rule).fallback
    for _ in range(2):
        found.add(peers(1, 2, 3, 4), peers(2))
    assert choose_neighbours(found, rule).neighbours == (2,)


def test_what_is_expected_of_samplings_of_different_sizes_by_hand() -> None:
    """Two of three, two of three, two of five and both of two. Peer 1 was in all four: 2/3 + 2/3 + 2/5 + 1 = 2.733.
    Peer 2 was in the first two and the last, peer 4 in the third alone, peer 9 in none."""
    counted = Tally()
    counted.add(peers(1, 2, 3), peers(1, 2))
    counted.add(peers(1, 2, 3), peers(1, 3))
    counted.add(peers(1, 3, 4, 5, 6), peers(1, 4))
    counted.add(peers(1, 2), peers(1, 2))
    assert counted.samplings == 4
    assert counted.size == 3
    assert counted.apart == {5: Counter(peers(1, 3, 4, 5, 6)), 2: Counter(peers(1, 2))}
    assert counted.sampled == {1: 4, 2: 3, 3: 3, 4: 1, 5: 1, 6: 1}
    assert counted.selected == {1: 4, 2: 2, 3: 1, 4: 1}
    rule = SelectionRule(m=2, n_sampled=3, num_others=6, expected="received")
    assert Tally().expected(PeerId(1), rule) == 0
    for peer, expected in ((1, 2 / 3 + 2 / 3 + 2 / 5 + 1), (2, 2 / 3 + 2 / 3 + 1), (4, 2 / 5), (9, 0.0)):
        assert counted.expected(PeerId(peer), rule) == pytest.approx(expected)
    # 4 > 2.73 and 1 > 0.4; but 2 < 2.33 and 1 < 2/3 + 2/3 + 2/5
    assert choose_neighbours(counted, rule).neighbours == (1, 4)


def test_each_sampling_counts_by_its_own_size() -> None:
    """m = 2, n_sampled = 3. Peer 1 was compared once with n_sampled, twice among six, and selected twice: chance gives
    2/3 + 2 · 2/6 = 1.33, though of three comparisons with n_sampled it would be 2. Peer 2 was alone three times, where
    everybody is selected: 3 of 3 are what is expected."""
    rule = SelectionRule(m=2, n_sampled=3, num_others=9, expected="received")
    counted = Tally()
    counted.add(peers(1, 3, 4), peers(3, 4))
    for _ in range(2):
        counted.add(peers(1, 5, 6, 7, 8, 9), peers(1, 5))
    for _ in range(3):
        counted.add(peers(2), peers(2))
    assert counted.expected(PeerId(2), rule) == 3
    assert choose_neighbours(counted, rule).neighbours == (1, 3, 4, 5)


def test_a_restored_tally_knows_all_of_what_it_counted() -> None:
    counted = Tally()
    for senders, chosen in (((1, 2, 3), (1,)), ((1, 2), (2,)), ((1, 4), (4,)), ((2, 3, 4, 5), (2,))):
        counted.add(peers(*senders), peers(*chosen))
    restored = Tally.restored(json.loads(json.dumps(counted.state())))
    assert restored == counted
    assert restored.apart == {2: {1: 2, 2: 1, 4: 1}, 4: {2: 1, 3: 1, 4: 1, 5: 1}}
    restored.add(peers(1, 2), peers(1))
    counted.add(peers(1, 2), peers(1))
    assert restored == counted


def test_samplings_that_are_all_smaller_than_n_sampled_count_by_their_size() -> None:
    """Only two others were there, n_sampled = 4: chance selects each of them every second time, not every fourth."""
    rule = SelectionRule(m=1, n_sampled=4, num_others=4, expected="received")
    counted = Tally()
    for chosen in (1, 1, 1, 2, 2):
        counted.add(peers(1, 2), peers(chosen))
    assert choose_neighbours(counted, rule).neighbours == (1,)  # 3 > 2.5, 2 < 2.5; a fourth of 5 is 1.25


def test_what_is_expected_in_rounds_does_not_ask_how_often_a_peer_was_sampled() -> None:
    """Ten samplings of m = 2 among 5 others: expected 4 each, however large the samplings were."""
    rule = SelectionRule(m=2, n_sampled=3, num_others=5, expected="uniform")
    counted = Tally(Counter({PeerId(1): 5, PeerId(2): 4}), Counter({PeerId(1): 10, PeerId(2): 4}), 10, 2)
    counted.apart = {4: Counter({PeerId(1): 5})}
    assert choose_neighbours(counted, rule).neighbours == (1,)


def test_of_equal_counts_the_lower_numbers_are_taken_and_listed_in_order() -> None:
    """Nobody is above m · S / (k − 1) = 2 · 5 / 4 = 2.5: of 9, 4, 7 and 5, selected 2, 1, 2 and 2 times, 5 and 7."""
    rule = SelectionRule(m=2, n_sampled=3, num_others=4, expected="uniform")
    found = choose_neighbours(tally({9: 2, 4: 1, 7: 2, 5: 2}, {}, 5), rule)
    assert found.neighbours == (5, 7)
    assert found.fallback
    assert choose_neighbours(tally({9: 2, 4: 1}, {}, 5), rule).neighbours == (4, 9)


def test_neighbours_are_listed_in_order() -> None:
    rule = SelectionRule(m=2, n_sampled=3, num_others=4, expected="uniform")
    assert choose_neighbours(tally({9: 3, 4: 4, 7: 3}, {}, 5), rule).neighbours == (4, 7, 9)


# --- strangers --------------------------------------------------------------------------------------------------------


@given(st.floats(0, 10), losses)
def test_a_win_is_to_be_as_good_as_half_of_the_neighbours(loss: float, neighbours: list[float]) -> None:
    better = sum(not math.isnan(n) and n < loss for n in neighbours)
    if 2 * better < len(neighbours):
        assert is_win(loss, neighbours)
    if 2 * better > len(neighbours):
        assert not is_win(loss, neighbours)
    assert not is_win(math.nan, neighbours)


def test_admission_takes_enough_trials_and_more_than_a_quarter_of_them_won() -> None:
    trials = Trials()
    for number in range(8):
        trials.add(PeerId(1), number < 2)
        trials.add(PeerId(2), number < 3)
    trials.add(PeerId(3), True)
    assert admitted(trials, 6) == (2,)
    assert admitted(trials, 1) == (3,)
    assert admitted(trials, 9) == ()
    assert admitted(Trials.restored(trials.state()), 6) == (2,)


def test_a_newcomers_first_models_do_not_count_for_ever() -> None:
    trials = Trials()
    for number in range(104):
        trials.add(PeerId(1), number >= 100)
    assert admitted(trials, 6) == (1,)


def test_a_win_by_hand() -> None:
    """The middle of 1, 2, 4 is 2; that of 1, 2, 4, 8 is 3."""
    assert [is_win(loss, [4, 1, 2]) for loss in (1.9, 2.0, 2.1)] == [True, True, False]
    assert [is_win(loss, [8, 4, 1, 2]) for loss in (3.0, 3.1)] == [True, False]
    assert is_win(5.0, [math.nan])
    assert not is_win(math.nan, [math.inf])
    assert not is_win(5.0, [math.nan, 4.0, 4.0])


def test_the_latest_trials_are_remembered() -> None:
    trials = Trials()
    for number in range(70):
        trials.add(PeerId(3), number == 5)
    trials.add(PeerId(1), True)
    assert len(trials.wins[PeerId(3)]) == 64
    assert not any(trials.wins[PeerId(3)])  # the one that it won was the sixth of 70
    assert Trials.restored(json.loads(json.dumps(trials.state()))) == trials
    assert admitted(trials, 1) == (1,)
    trials.add(PeerId(0), True)
    assert admitted(trials, 1) == (0, 1)


def test_the_latest_trials_are_twice_as_many_as_are_needed() -> None:
    """Needed 2, so the latest 4 count: one of four is a quarter, which is not enough; two are."""
    for wins, is_in in (((1, 1, 1, 0, 0, 0), False), ((1, 0, 0, 1, 0, 0), False), ((0, 0, 1, 0, 1, 0), True)):
        trials = Trials()
        for win in wins:
            trials.add(PeerId(4), bool(win))
        assert (admitted(trials, 2) == (4,)) == is_in
