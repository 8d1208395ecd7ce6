"""The paper's decisions, each rule by its own words."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pens.messages import PeerId
from pens.policies import (
    EarlyStopping,
    SelectionRule,
    Tally,
    Trials,
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
    assert all(counted.expected(p, 1) == pytest.approx(counted.sampled[p] / 3) for p in counted.sampled)


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
        trials.add(PeerId(1), number < 2, float(number))
        trials.add(PeerId(2), number < 3, float(number))
    trials.add(PeerId(3), True, 9.0)
    assert admitted(trials, 6) == (2,)
    assert admitted(trials, 1) == (3,)
    assert admitted(trials, 9) == ()
    assert admitted(Trials.restored(trials.state()), 6) == (2,)
    assert trials.until(0.0) == 2


def test_a_newcomers_first_models_do_not_count_for_ever() -> None:
    trials = Trials()
    for number in range(104):
        trials.add(PeerId(1), number >= 100, float(number))
    assert admitted(trials, 6) == (1,)
