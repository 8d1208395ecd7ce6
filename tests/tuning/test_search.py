# SPDX-License-Identifier: Apache-2.0
"""What is varied for each method, how the best trial is chosen, and that no trial looks at test data."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pens
from pens.comparing.file import ComparisonFile, read_comparison
from pens.comparing.scenes import Scene, scenes_of
from pens.data.samples import Dataset, Samples
from pens.errors import Interrupted, SettingsError
from pens.experiment.holdings import Holdings
from pens.experiment.presets import preset
from pens.planning.conductor import PlanObserver
from pens.planning.plan import Means
from pens.planning.shared_data import SharedData
from pens.settings.space import LogUniform, Space, WholeNumbers
from pens.settings.tree import Settings
from pens.tasks.metric import ACCURACY, Measure
from pens.tuning.record import tuned
from pens.tuning.search import Search, Trial, Tried, best_of, trials_of
from pens.tuning.spaces import space_of, trial_values
from pens.tuning.store import TrialStore, Validated
from pens.tuning.wishes import Wishes, wishes_of
from tests.comparing.files import HEAD, written
from tests.conftest import tiny_dataset

FILE = f"""
methods = ["random", "dac", "central"]
{HEAD}
[scenarios.a]
{{more}}
"""


def read(folder: Path, more: str = "") -> tuple[ComparisonFile, Wishes, Scene]:
    file = read_comparison(written(folder, FILE.format(more=more)))
    return file, wishes_of(file, folder), scenes_of(file, SharedData())[0]


def test_every_method_varies_its_learning_rate_and_what_it_declares(tmp_path: Path) -> None:
    more = "[tuning.space]\nrounds = {whole = [1, 3]}\n[tuning.method.random]\nn_peers = {whole = [1, 2]}\n"
    _, wishes, scene = read(tmp_path, more)
    lr = preset("digits").settings.training.lr
    spaces = {method: space_of(scene, method, wishes) for method in scene.methods}
    assert spaces["dac"]["training.lr"] == LogUniform(lr / 10, lr * 10)
    assert [*spaces["dac"]] == ["training.lr", "dac.tau", "gossip.rounds"]
    assert [*spaces["random"]] == ["training.lr", "gossip.rounds", "gossip.n_peers"]
    assert [*spaces["central"]] == ["training.lr"]  # it has rounds of its own, in central_rounds


def test_trials_are_the_same_for_all_methods_and_whatever_else_is_varied() -> None:
    few: Space = {"training.lr": LogUniform(1e-4, 1e-1)}
    many: Space = {"gossip.n_peers": WholeNumbers(1, 9), **few}
    assert trial_values(many, 0) == {}
    drawn = [trial_values(many, number) for number in range(1, 5)]
    assert [each["training.lr"] for each in drawn] == [
        trial_values(few, number)["training.lr"] for number in range(1, 5)
    ]
    assert len({each["training.lr"] for each in drawn}) == 4
    assert trial_values(few, 1) == {"training.lr": 0.01747}  # so that trials of yesterday are found tomorrow


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("[tuning]\ntrials = 0", "trials = 0: give a whole number of at least 1"),
        ("[tuning]\ntrails = 3", "unknown key 'trails', did you mean 'trials'"),
        ("[tuning]\nseeds = [0, 5]", "seed 0 is both tuned with and reported"),
        ("[tuning.method.pens]\nlr = [1]", "is for no method of the comparison"),
        ("[tuning.space]\nlr = {log = [-1, 1]}", r"\[tuning.space\] lr = .*above 0"),
        ("[tuning.space]\nlrr = {log = [1, 2]}", "unknown setting 'lrr', did you mean 'lr'"),
        ("[tuning.space]\nlr = [1e-3, 'much']", "range of training.lr for random: lr = 'much'"),
        ("[tuning.space]\npeers = {whole = [4, 8]}", "range of scenario.peers for random: methods are compared on"),
        ("[tuning.method.central]\nrounds = {whole = [4, 8]}", "gossip.rounds has no effect on central"),
        ("[tuning.method.random]\ntau = {whole = [4, 8]}", "dac.tau has no effect on random"),
        ("[tuning.settings]\ntrain_per_peer = 3", "train_per_peer: trials have the data"),
    ],
)
def test_what_cannot_be_tuned_is_refused(tmp_path: Path, more: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        all_trials(tmp_path, more)


def all_trials(folder: Path, more: str) -> list[Trial]:
    file, wishes, scene = read(folder, more)
    wishes.check(file.seeds)
    return list(trials_of(scene, wishes))


def test_values_that_cannot_work_together_cost_a_trial(tmp_path: Path) -> None:
    trials = all_trials(tmp_path, "[tuning]\ntrials = 6\n[tuning.method.random]\nn_peers = {whole = [1, 9]}\n")
    random = [trial for trial in trials if trial.method == "random"]
    assert len(random) == 6
    refused = [trial for trial in random if trial.refused]
    assert [trial.values["gossip.n_peers"] > 3 for trial in random[1:]] == [bool(t.refused) for t in random[1:]]
    assert refused
    assert "each peer can hear at most 3 others" in refused[0].refused


def made(number: int, score: float | None, measure: Measure = ACCURACY, refused: str = "") -> Tried:
    trial = Trial("a", "dac", number, {}, Settings(), refused)
    found = {} if score is None else {1000: Validated(score - 0.1, 0, 0, ""), 1001: Validated(score + 0.1, 0, 0, "")}
    return Tried(trial, measure, found)


def test_the_best_trial_by_hand() -> None:
    error = Measure("error", "", higher_is_better=False)
    assert best_of([made(0, 0.6), made(1, 0.8), made(2, 0.8), made(3, math.nan)]) == made(1, 0.8)
    assert best_of([made(0, 0.6, error), made(1, 0.5, error), made(2, 0.9, error)]) == made(1, 0.5, error)
    assert best_of([made(0, 0.6), made(1, None, refused="too many peers")]) == made(0, 0.6)
    assert best_of([made(0, 0.6), made(1, None)]) is None  # not complete: others would have had more trials


class Stopping(PlanObserver):
    """Asks for a stop after so many looks."""

    def __init__(self, at: int = 10**9) -> None:
        self.lines: list[str] = []
        self._left = at

    def working(self) -> None:
        self._left -= 1
        if not self._left:
            raise Interrupted("stopped")

    def tried(self, message: str) -> None:
        self.lines.append(message)


def search_of(folder: Path, name: str, dataset: Dataset, at_once: int = 0, budget_s: float | None = None) -> Search:
    """A small search with two seeds on this data set."""
    file, wishes, _ = read(folder, "[tuning]\ntrials = 2\nseeds = 2\n")
    data = SharedData()
    data._found = dict.fromkeys([data_key(file, data)], dataset)
    scenes = scenes_of(file, data)
    if at_once:
        scenes = [with_engine(scene, at_once) for scene in scenes]
    search = Search(scenes, wishes, TrialStore(folder / name), Means("cpu", None, budget_s), data)
    search.prepare()
    return search


def searched(folder: Path, name: str, dataset: Dataset, stop_at: int = 10**9, at_once: int = 0) -> Search:
    """The same, computed."""
    search = search_of(folder, name, dataset, at_once)
    search.run(Stopping(stop_at))
    return search


def with_engine(scene: Scene, at_once: int) -> Scene:
    changed = {"seeds_at_once": at_once}
    return replace(scene, methods={method: of.replace(changed) for method, of in scene.methods.items()})


def data_key(file: ComparisonFile, data: SharedData) -> str:
    (scene,) = scenes_of(file, data)
    data.load(scene.settings)
    return next(iter(data._found))


def results(search: Search) -> list[tuple[str, int, dict[int, tuple[float, float]]]]:
    return [
        (each.trial.method, each.trial.number, {seed: (of.score, of.loss) for seed, of in each.found.items()})
        for each in search.tried()
    ]


def test_tuning_reads_no_test_data_goes_on_after_a_stop_and_may_compute_trials_together(tmp_path: Path) -> None:
    dataset = tiny_dataset()
    plain = results(searched(tmp_path, "plain", dataset))
    assert [(method, number) for method, number, _ in plain] == [
        (method, number) for method in ("random", "dac", "central") for number in (0, 1)
    ]
    assert all(set(found) == {1000, 1001} for _, _, found in plain)
    poisoned = Samples(dataset.test.x[::-1] * 1e6, (dataset.test.y + 1) % 3)
    assert results(searched(tmp_path, "other", replace(dataset, test=poisoned))) == plain
    with pytest.raises(Interrupted):
        searched(tmp_path, "broken", dataset, stop_at=4)
    assert list((tmp_path / "broken").rglob("checkpoint.safetensors"))
    assert results(searched(tmp_path, "broken", dataset)) == plain
    assert not list((tmp_path / "broken").rglob("checkpoint.safetensors"))
    together = results(searched(tmp_path, "together", dataset, at_once=4))
    for (*name, one), (*other, two) in zip(plain, together, strict=True):
        assert name == other
        for seed, values in one.items():
            np.testing.assert_allclose(two[seed], values, rtol=1e-6)


def test_what_is_validated_is_the_model_that_would_be_tested(tmp_path: Path) -> None:
    """The models of a whole run with the same settings and seed, on the peers' validation data."""
    dataset = tiny_dataset()
    search = search_of(tmp_path, "out", dataset)
    search.run(Stopping())
    tried = search.tried()[0]
    settings = tried.trial.settings
    result = pens.run(settings, methods="random", seeds=[1000, 1001], data=dataset, device="cpu", progress=False)
    for run in result.runs:
        peers = Holdings(settings, dataset).federation(settings, run.seed).peers
        shares = [(run.predict(p, peer.val.x) == peer.val.y).mean() for p, peer in enumerate(peers)]
        assert tried.found[run.seed].score == pytest.approx(np.mean(shares))


def test_trials_with_other_own_data_are_other_trials(tmp_path: Path) -> None:
    settings, store = Settings().replace({"source": str(tmp_path / "own.csv")}), TrialStore(tmp_path / "out")
    folders = []
    for text in ("a", "b", "a"):
        written(tmp_path, text, "own.csv")
        folders.append(store.run_dir(settings, "random", 1000).folder)
    assert folders[0] != folders[1]
    assert folders[0] == folders[2]


def test_what_does_not_fit_into_the_budget_is_not_begun_and_nothing_is_chosen_of_few_trials(tmp_path: Path) -> None:
    """Each seed of a trial takes ten seconds of 25, so that both seeds of one trial fit, and no second trial."""
    search, observer = search_of(tmp_path, "out", tiny_dataset(), budget_s=25.0), Stopping()
    for trial in search.trials:
        search.estimates.learn(trial.settings, trial.method, 10.0, "cpu")
    search.run(observer, clock=lambda: 10.0 * len(observer.lines))
    assert [bool(each.found) for each in search.tried()] == [True, False, False, False, False, False]
    assert len(observer.lines) == 2
    assert not list(tmp_path.rglob("checkpoint.safetensors"))
    assert tuned(read(tmp_path)[0], search.tried(), search.wishes).scenarios[0].of_method == {}
    assert len(search.works()) == 5
