# SPDX-License-Identifier: Apache-2.0
"""The numbers of a report against numbers worked out by hand, or by the rule that they repeat."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pens.measuring.metrics import neighbour_agreement
from pens.measuring.results import Comparisons, Pairs, RunResult, spending, work_of
from pens.protocol.messages import PeerId
from pens.protocol.policies import SelectionRule, Tally, choose_neighbours
from pens.report.analysis import costs, difference, differences, gains, holm, outcomes, paired, ranking, summary_of
from pens.report.learning_curves import curves, positions, value_at
from pens.report.merge_maps import merge_map
from pens.report.selection_curves import agreement_by_round, selection_curve
from pens.report.study import read_studies
from pens.settings.tree import Settings
from tests.conftest import TINY
from tests.experiment.test_experiment import tiny_run
from tests.report.made import MODEL_BYTES, made_run, made_study

SETTINGS = Settings().replace(TINY)


def with_accuracy(run: RunResult, accuracy: list[float]) -> RunResult:
    return replace(run, score=np.array(accuracy))


def runs_of(method: str, *means: float) -> list[RunResult]:
    made = [made_run(SETTINGS, method, seed, mean) for seed, mean in enumerate(means)]
    return [with_accuracy(run, [mean] * 6) for run, mean in zip(made, means, strict=True)]


def test_a_difference_is_paired_by_seed_and_turned_towards_the_better() -> None:
    found = difference(runs_of("random", 0.50, 0.60, 0.55), runs_of("pens", 0.60, 0.66, 0.69))
    assert found
    assert (found.better, found.other, found.seeds) == ("pens", "random", (0, 1, 2))
    assert found.values == pytest.approx((0.10, 0.06, 0.14))
    # mean 0.1, standard deviation 0.04, so half the interval is t(2 degrees, 97.5 %) · 0.04 / √3
    assert found.mean.mean == pytest.approx(0.10)
    assert found.mean.half_width == pytest.approx(4.302652729911275 * 0.04 / 3**0.5)
    assert found.is_clear
    # t = 0.1 / (0.04 / √3) = 4.330 with 2 degrees
    assert found.p_t == pytest.approx(2 * stats.t.sf(0.1 / (0.04 / 3**0.5), 2))
    assert found.p_wilcoxon is None


def test_seeds_are_paired_by_their_number_and_not_by_their_place() -> None:
    """`random` was run with seeds 0 to 3, `pens` with 2, 5, 0, 3 in this order: they share 0, 2 and 3. Seed 0: 60 − 50
    = 10 points; seed 2: 75 − 55 = 20; seed 3: 65 − 50 = 15; by place it would be 75 − 50 and so on."""
    random = runs_of("random", 0.50, 0.60, 0.55, 0.50)
    runs = runs_of("pens", 0.75, 0.90, 0.60, 0.65)
    pens = [replace(run, seed=seed) for run, seed in zip(runs, (2, 5, 0, 3), strict=True)]
    found = difference(random, pens)
    assert found
    by_seed = dict(zip(found.seeds, found.values, strict=True))
    assert by_seed == {0: pytest.approx(0.10), 2: pytest.approx(0.20), 3: pytest.approx(0.15)}
    assert found.mean.mean == pytest.approx(0.15)
    both = paired(pens, random)
    assert both
    assert both.mean == pytest.approx(0.15)
    assert both.half_width == pytest.approx(4.302653 * 0.05 / 3**0.5, rel=1e-5)  # two degrees of freedom
    assert paired(pens[1:2], random) is None


def test_few_or_equal_seeds_give_no_test_rather_than_a_wrong_one() -> None:
    one = difference(runs_of("random", 0.5), runs_of("pens", 0.6, 0.7))
    assert one
    assert (one.seeds, one.mean.half_width, one.p_t, one.is_clear) == ((0,), None, None, False)
    same = difference(runs_of("random", 0.5, 0.5), runs_of("pens", 0.5, 0.5))
    assert same
    assert same.p_t is None
    assert not same.is_clear
    two = difference(runs_of("random", 0.5, 0.51), runs_of("pens", 0.6, 0.62))  # t = 12.7: an interval of ± 6 points
    assert two
    assert (two.mean.half_width, two.p_t, two.is_clear) == (None, None, False)
    assert two.mean.values == pytest.approx((0.1, 0.11))
    assert difference([], runs_of("pens", 0.5)) is None


def test_methods_that_are_equally_good_stay_in_their_order() -> None:
    """0.5 and 0.75 against the reverse: the mean difference is nothing, and the first is called the better one."""
    found = difference(runs_of("random", 0.5, 0.75), runs_of("pens", 0.75, 0.5))
    assert found
    assert (found.better, found.other, found.values) == ("random", "pens", (-0.25, 0.25))
    other = difference(runs_of("pens", 0.75, 0.5), runs_of("random", 0.5))  # with a single seed
    assert other
    assert (other.better, other.other, other.values) == ("pens", "random", (0.25,))


def test_seeds_that_all_differ_by_the_same_have_no_t_test() -> None:
    """A quarter each: their standard deviation is nothing, by which t would be divided. Signs and ranks are those of
    any six seeds that agree, unless nothing differs at all."""
    lower, higher = (0.25, 0.5, 0.375), (0.5, 0.75, 0.625)
    same = difference(runs_of("random", *lower), runs_of("pens", *higher))
    assert same
    assert (same.values, same.p_t, same.p_wilcoxon) == ((0.25,) * 3, None, None)
    six = difference(runs_of("random", *lower, *lower), runs_of("pens", *higher, *higher))
    assert six
    assert six.p_t is None
    assert six.p_wilcoxon is not None
    nothing = difference(runs_of("random", *lower, *lower), runs_of("pens", *lower, *lower))
    assert nothing
    assert (nothing.p_t, nothing.p_wilcoxon) == (None, None)


def test_a_seed_without_a_difference_has_no_rank() -> None:
    """The signed-rank test leaves it out: the other five have the same sign, of 2⁵ ways to give them signs. The t test
    counts all six."""
    gained = (0.0, 0.0625, 0.125, 0.1875, 0.25, 0.3125)
    found = difference(runs_of("random", *([0.5] * 6)), runs_of("pens", *(0.5 + gain for gain in gained)))
    assert found
    assert found.values == gained
    assert found.p_wilcoxon == pytest.approx(2 / 2**5)
    # mean 5 / 32, standard deviation 0.0625 · √3.5: t = 5 / 32 / (0.0625 · √(3.5 / 6)) = 2.5 / √(7 / 12) = 3.273
    assert found.p_t == pytest.approx(2 * stats.t.sf(2.5 / (7 / 12) ** 0.5, 5))


def test_wilcoxon_comes_with_six_seeds() -> None:
    means = (0.50, 0.51, 0.52, 0.53, 0.54, 0.55)
    found = difference(runs_of("random", *means), runs_of("pens", *(0.6 + 2 * m / 10 for m in means)))
    assert found
    assert found.p_wilcoxon == pytest.approx(2 / 2**6)  # all six differences have the same sign


def test_holm_multiplies_and_never_falls() -> None:
    # sorted 0.01 · 4, 0.02 · 3, 0.03 · 2, 0.5 · 1, each at least the one before
    assert holm([0.02, 0.5, 0.01, 0.03]) == pytest.approx([0.06, 0.5, 0.04, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_all_pairs_are_compared(tmp_path: Path) -> None:
    study = made_study(
        tmp_path / "run", SETTINGS, {"local": [0.3, 0.31, 0.3], "pens": [0.6, 0.65, 0.6], "random": [0.5, 0.52, 0.5]}
    )
    found = differences(study)
    assert [(d.better, d.other) for d in found] == [("pens", "local"), ("random", "local"), ("pens", "random")]
    assert holm([d.p_t or 0 for d in found]) == [d.p_holm for d in found]
    assert ranking(study) == ["pens", "random", "local"]


def test_gains_are_paired_with_local_of_the_same_seed(tmp_path: Path) -> None:
    study = made_study(tmp_path / "run", SETTINGS, {"local": [0.5], "pens": [0.5, 0.5]})
    local = with_accuracy(study.of("local")[0], [0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
    pens = [with_accuracy(run, [0.6, 0.4, 0.5, 0.3, 0.7, 0.5]) for run in study.of("pens")]
    study = replace(study, runs=(local, *pens))
    found = outcomes(study)
    assert len(found) == 18
    assert [o.gain for o in found if (o.method, o.seed) == ("pens", 1)] == [None] * 6  # local has no seed 1
    (gained,) = gains(study, found)
    assert gained.values == pytest.approx([0.1, -0.1, 0, -0.2, 0.2, 0])
    assert gained.lost == 2
    assert gained.share_lost == pytest.approx(1 / 3)
    assert (gained.worst.peer, gained.worst.seed, gained.worst.cluster) == (3, 0, "180°")
    assert gained.worst.gain == pytest.approx(-0.2)


def test_gains_need_local_beside_another_method(tmp_path: Path) -> None:
    """Nothing can be said without `local`, or of `local` itself. Where nobody loses, the worst is who gains nothing."""
    study = made_study(tmp_path / "run", SETTINGS, {"local": [0.5], "pens": [0.5]})
    local, pens = (with_accuracy(run, [0.25] * 6) for run in study.runs)
    alone = replace(study, runs=(pens,))
    assert gains(alone, outcomes(alone)) == []
    assert gains(study, outcomes(replace(study, runs=(local,)))) == []
    pens = with_accuracy(pens, [0.5, 0.375, 0.25, 0.75, 0.25, 1.0])
    (gained,) = gains(study, outcomes(replace(study, runs=(local, pens))))
    assert gained.values.tolist() == [0.25, 0.125, 0, 0.5, 0, 0.75]
    assert (gained.worst.peer, gained.worst.gain, gained.lost) == (2, 0, 0)


def test_outcomes_name_a_peers_cluster_only_where_it_is_known(tmp_path: Path) -> None:
    study = made_study(tmp_path / "run", SETTINGS, {"pens": [0.5]}, clusters=(1, 0, 1, 0, 0, 0))
    assert [o.cluster for o in outcomes(study)] == ["180°", "0°", "180°", "0°", "0°", "0°"]
    unknown = replace(study.runs[0], cluster_names=("unknown", "180°"))
    assert [o.cluster for o in outcomes(replace(study, runs=(unknown,)))] == [""] * 6


def test_costs_count_models_bytes_and_forward_passes(tmp_path: Path) -> None:
    accuracies = {"local": [0.5], "random": [0.6], "pens": [0.7], "central": [0.8]}
    study = made_study(tmp_path / "run", SETTINGS, accuracies)
    local, random, pens, central = costs(study)
    # 4 rounds and the first training, 2 epochs of 9 samples at 3 passes each, 5 validation samples each
    assert (local.training, local.validation, local.scoring) == (5 * 2 * 9 * 3, 5 * 5, 0)
    assert local.forwards == 270 + 25
    assert (random.received, random.bytes_received, random.forwards) == (12, 12 * MODEL_BYTES, 295)
    # 3 rounds of step 1 with 1 epoch more, in each of which 3 models are scored on 9 samples
    assert (pens.scored, pens.scoring) == (9, 9 * 9)
    assert pens.training == (5 * 2 + 3 * 1) * 9 * 3
    assert pens.bytes_received == 21 * MODEL_BYTES
    # one learner, 5 rounds of 1 epoch, shared by 6 peers
    assert central.training == pytest.approx(5 * 1 * 9 * 3 / 6)
    gain = study.of("pens")[0].mean_accuracy - study.of("local")[0].mean_accuracy
    assert pens.gain == pytest.approx(gain)
    assert pens.per_gb(pens.gain) == pytest.approx(gain / (21 * MODEL_BYTES / 1e9))
    assert local.per_gb(local.score) is None


def test_work_counts_what_each_setting_makes_a_peer_do(tmp_path: Path) -> None:
    """6 peers of 9 training and 5 validation samples, 2 epochs, 1 in step 1; all by hand."""
    changed = {"score_on": "val", "score_samples": 3, "train_first": False, "rounds": 4, "patience": 99}
    tiny_run(methods="pens,random,central", out=tmp_path / "run", overrides=changed)
    (study,) = read_studies([tmp_path / "run"])
    pens_, random, central = study.runs
    assert work_of(random, study.spec(random)) == (4 * 2 * 9 * 3, 4 * 5, 0)
    # 3 rounds of step 1 with 2 samplings of 3 models, each scored on 3 validation samples; then 4 rounds
    assert work_of(pens_, study.spec(pens_)) == ((3 * 1 + 4 * 2) * 9 * 3, 7 * 5, 3 * 2 * 3 * 3)
    epochs, samples = len(central.history.version), 6 * 9
    assert work_of(central, study.spec(central)) == pytest.approx((epochs * samples * 3 / 6, epochs * 6 * 5 / 6, 0))
    assert summary_of(study, "pens").work == spending(pens_, study.spec(pens_)).work == 297 + 35 + 54
    assert spending(pens_, None).work is None


def test_the_typed_table_has_what_each_method_cost() -> None:
    result = tiny_run(methods="random,pens", seeds=2, overrides={"rounds": 4, "patience": 99})
    random, pens_ = result.table
    # 4 rounds of 2 models; step 1 is 3 rounds of 2 samplings of 3 models, of which it merges one a round
    assert random.models_received == random.models_merged == 8
    assert pens_.models_received == pytest.approx(18 + pens_.models_merged - 3)
    size = result.runs[0].communication.model_bytes
    assert pens_.bytes_received == pytest.approx(pens_.models_received * size)
    assert random.work == 5 * (2 * 9 * 3 + 5)
    assert pens_.work == random.work + 3 * (1 * 9 * 3 + 5) + 18 * 9


def test_curves_hold_a_peers_last_value_on_every_axis(tmp_path: Path) -> None:
    study = made_study(tmp_path / "run", SETTINGS, {"random": [0.5], "local": [0.4]})
    (run,) = study.of("random")
    history = replace(
        run.history,
        peer=np.array([0, 1, 0, 1, 0]),
        version=np.array([1, 1, 2, 2, 3]),
        time=np.array([0.5, 0.5, 1.5, 1.5, 2.5]),
        searching=np.zeros(5, bool),
        val_accuracy=np.array([0.1, 0.3, 0.2, 0.5, 0.6]),
        received=np.array([0, 0, 3, 2, 7]),
    )
    study = replace(study, runs=(replace(run, history=history), *study.of("local")))
    over_rounds = curves(study, "rounds")[0]
    assert over_rounds.at.tolist() == [0, 1, 2]
    assert over_rounds.mean == pytest.approx([0.2, 0.35, 0.55])
    assert over_rounds.first_reach(0.3) == 1
    assert over_rounds.first_reach(0.9) is None
    assert [c.method for c in curves(study, "bytes")] == ["random"]  # local receives nothing
    for models, mean in ((0, 0.2), (2, 0.3), (3, 0.35), (6.9, 0.35), (7, 0.55), (99, 0.55)):
        assert value_at(study, "random", "bytes", models * MODEL_BYTES) == pytest.approx(mean)
    # 2 epochs · 9 samples · 3 passes + 5 validation samples = 59 an update
    assert positions(study, study.runs[0], "forwards") == pytest.approx([59, 59, 118, 118, 177])
    older = replace(study, runs=(replace(run, history=replace(history, received=None)),))
    assert curves(older, "bytes") == []
    assert value_at(older, "random", "bytes", 0) is None


@pytest.mark.parametrize("train_first", [True, False])
@pytest.mark.parametrize("schedule", ["rounds", "async"])
def test_neighbours_at_the_last_round_are_those_that_were_selected(
    tmp_path: Path, schedule: str, train_first: bool
) -> None:
    changed = {"schedule": schedule, "train_first": train_first}
    tiny_run(methods="pens", seeds=2, overrides=changed, out=tmp_path / "run")
    (study,) = read_studies([tmp_path / "run"])
    (cost,) = costs(study)
    for run in study.runs:
        found = selection_curve(study, run)
        assert found
        assert run.agreement
        assert found.precision[-1] == pytest.approx(run.agreement.precision)
        assert found.recall[-1] == pytest.approx(run.agreement.recall)
        assert found.rounds.tolist() == [1, 2, 3]
    totals = [positions(study, run, "forwards") for run in study.runs]  # the last of each peer is all its work
    per_run = [sum(t[run.history.peer == p].max() for p in range(6)) for t, run in zip(totals, study.runs, strict=True)]  # type: ignore[index]
    assert np.mean(per_run) / 6 == pytest.approx(cost.forwards)


@given(st.data())
def test_neighbours_by_round_repeat_the_rule_of_step_1(data: st.DataObject) -> None:
    """Whatever the rule, and however many models each round's samplings have."""
    num, rounds = data.draw(st.integers(3, 6)), data.draw(st.integers(1, 3))
    n_sampled, each = data.draw(st.integers(2, num - 1)), data.draw(st.integers(1, 3))
    m = data.draw(st.integers(1, n_sampled - 1))
    clusters = data.draw(st.lists(st.integers(0, 1), min_size=num, max_size=num))
    rule = data.draw(
        st.builds(
            SelectionRule, st.just(m), st.just(n_sampled), st.just(num - 1), st.sampled_from(("uniform", "received")),
            st.sampled_from(("expected", "groups")), st.sampled_from((-1.0, 0.0, 1.0)),
            st.sampled_from(("most-selected", "alone")),
        )
    )  # fmt: skip
    tallies = {peer: Tally() for peer in range(num)}
    rows, by_rule = [], []
    for round_ in range(1, rounds + 1):
        for peer, tally in tallies.items():
            others = [PeerId(p) for p in range(num) if p != peer]
            size = data.draw(st.integers(1, n_sampled))
            sampled, selected = Counter[PeerId](), Counter[PeerId]()
            for _ in range(each):
                senders = data.draw(st.permutations(others))[:size]
                chosen = data.draw(st.permutations(senders))[:m]
                tally.add(senders, chosen)
                sampled.update(senders)
                selected.update(chosen)
            rows += [(peer, round_, p, sampled[p], selected[p]) for p in sorted(sampled)]
        selections = {PeerId(p): choose_neighbours(tally, rule).neighbours for p, tally in tallies.items()}
        by_rule.append(neighbour_agreement(selections, clusters))
    found = agreement_by_round(Comparisons(*np.array(rows).T), rule, clusters, samplings=each)
    for ours, theirs in zip(found, by_rule, strict=True):
        assert (ours.precision, ours.recall) == pytest.approx(
            (theirs.precision, theirs.recall) if theirs else (np.nan, np.nan), nan_ok=True
        )


def test_a_small_sampling_counts_by_its_own_size_in_a_report_too() -> None:
    """m = 1, n_sampled = 3, received. Peer 0 compares 1 and 2 in two samplings of two, and selects each once: chance
    gives 2 · 1/2 = 1 for each, so nobody is found, and the most selected is peer 1, of its cluster. Were each counted
    with n_sampled, 2/3 would be expected and both be neighbours: precision 1/2. In the second round three of three are
    compared, 1 twice selected of twice: 3 > 1 + 2/3, 1 < 1 + 2/3."""
    rule = SelectionRule(m=1, n_sampled=3, num_others=3, expected="received")
    columns = [(0, 1, 1, 2, 1), (0, 1, 2, 2, 1), (0, 2, 1, 2, 2), (0, 2, 2, 2, 0), (0, 2, 3, 2, 0)]
    counts = Comparisons(*(np.array(column) for column in zip(*columns, strict=True)))
    first, second = agreement_by_round(counts, rule, (0, 0, 1, 1), samplings=2)
    assert (first.precision, second.precision) == (1.0, 1.0)
    counted = Tally()
    for chosen in (1, 2):
        counted.add([PeerId(1), PeerId(2)], [PeerId(chosen)])
    assert choose_neighbours(counted, rule).neighbours == (1,)


def test_a_round_that_was_never_ended_has_the_samplings_that_its_comparisons_need() -> None:
    """uniform, m = 1, three others. Peer 0 ended round 1, whose 4 samplings select 1 and 2 twice each: 4/3 expected, so
    both are neighbours. Round 2 it gave up after one sampling, which selects 1: 5/3 expected. Four samplings there
    would make 8/3, and only 1 a neighbour."""
    rule = SelectionRule(m=1, n_sampled=2, num_others=3, expected="uniform")
    columns = [(0, 1, 1, 4, 2), (0, 1, 2, 4, 2), (0, 2, 1, 1, 1), (0, 2, 2, 1, 0)]
    counts = Comparisons(*(np.array(column) for column in zip(*columns, strict=True)))
    for ended, precision in ((1, 0.5), (2, 1.0)):
        found = agreement_by_round(counts, rule, (0, 0, 1, 1), samplings=4, ended=np.array([ended, 0, 0, 0]))
        assert [each.precision for each in found] == [0.5, precision]


def test_a_merge_map_sorts_peers_by_cluster_and_takes_them_together() -> None:
    run = made_run(SETTINGS, "random", 0, 0.5, clusters=(1, 0, 1, 0, 1, 1))
    pairs = Pairs(*(np.array(c) for c in ([0, 0, 1, 3], [2, 1, 3, 1], [6, 2, 4, 8], [0] * 4, [0] * 4)))
    run = replace(run, pairs=pairs)
    whole = merge_map(run)
    assert whole
    assert whole.groups == ((1,), (3,), (0,), (2,), (4,), (5,))
    assert whole.sections == ("0°", "0°", "180°", "180°", "180°", "180°")
    assert whole.mean[0, 1] == 4  # peer 1 merged peer 3 four times
    assert whole.mean[2, 3] == 6
    assert whole.within == pytest.approx(18 / 20)
    coarse = merge_map(run, cells=3)
    assert coarse
    assert coarse.groups == ((1, 3), (0, 2), (4, 5))
    assert coarse.mean[0, 0] == pytest.approx((4 + 8) / 2)  # two ordered pairs
    assert coarse.mean[1, 0] == pytest.approx(2 / 4)
    assert merge_map(made_run(SETTINGS, "local", 0, 0.5)) is None
