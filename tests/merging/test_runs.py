# SPDX-License-Identifier: Apache-2.0
"""Whole runs with each merge rule, and with methods that say weights: laws, real peers, own rules."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Iterator
from contextlib import nullcontext as no_error
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pens
from pens.data.scenarios import Federation
from pens.errors import Interrupted, SettingsError
from pens.experiment.presets import resolve_settings
from pens.learning.jobs import decode_update, encode_update
from pens.network.node.encoded_jobs import decode_job, encode_job
from pens.network.node.node import Node
from pens.network.node.parts import NodeRules
from pens.network.operating.peer_config import read_peer_config
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.rotation import rotated_federation
from pens.parts import MERGE_RULES
from pens.protocol.messages import (
    Action,
    Ask,
    Blend,
    Counts,
    Distances,
    Drop,
    Event,
    Losses,
    ModelRef,
    PeerId,
    Phase,
    Query,
    Update,
    Verdicts,
)
from pens.protocol.peer import Peer
from pens.settings.reading import parse_assignments
from pens.settings.tree import Settings
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.experiment.test_experiment import StopAfter, same_result
from tests.fakes import fake_simulations
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import decisions, final_models, run, simulation

RULES = ("weighted", "median", "trimmed", "clipped", "mean, by the method's weights")
VALUES: dict[str, object] = {**TINY, "n_peers": 4, "patience": 99, "rounds": 3, "epochs": 1, "trim_share": 0.34}


def settings_of(rule: str, **values: object) -> Settings:
    return Settings().replace({**VALUES, "merge": rule.partition(",")[0], **values})


@pytest.fixture
def _weights(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rule's name says so, peers weight models by their owners' numbers, and heads otherwise than bodies."""
    handle = Peer.handle

    @functools.wraps(handle)
    def handle_and_weight(self: Peer, event: Event) -> list[Action]:
        return [weighted(self.me, action) for action in handle(self, event)]

    if "weights" in request.getfixturevalue("rule"):
        monkeypatch.setattr(Peer, "handle", handle_and_weight)


def weighted(me: PeerId, action: Action) -> Action:
    if not isinstance(action, Update) or action.top_m is not None:
        return action
    numbers = [1 + me, *(1 + ref.owner for ref in action.models)]
    body = tuple(n / sum(numbers) for n in numbers)
    head = (0.5, *(0.5 / len(action.models) for _ in action.models)) if action.models else (1.0,)
    return Update(
        action.models,
        None,
        action.epochs,
        action.may_stop,
        weights=body,
        segment_weights=(("out", head), ("conv.bias", body)),
    )


# --- the simulator ----------------------------------------------------------------------------------------------------


def unequal(settings: Settings) -> Federation:
    """Peers with 9, 8, 7, 6, 9, 8 training samples."""
    federation = rotated_federation(tiny_dataset(), settings.scenario, 0)
    peers = (replace(peer, train=peer.train.take(slice(9 - p % 4))) for p, peer in enumerate(federation.peers))
    return replace(federation, peers=tuple(peers))


@pytest.mark.parametrize("schedule", ["rounds", "async"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.usefixtures("_weights")
def test_laws_hold_with_each_rule(rule: str, schedule: str) -> None:
    """Law 2: one update at a time; law 3: little memory; law 4: stopped and resumed. To the last bit."""
    settings = settings_of(rule, schedule=schedule, validated="merged", latency=0.2)
    federation = unequal(settings)
    whole = run(simulation(settings, "random", federation=federation))
    assert whole.learners.num_updates > 8
    one = run(simulation(settings.replace({"max_batch": 1}), "random", federation=federation, memory_bytes=1))
    broken = run(simulation(settings, "random", federation=federation), 2)
    data, tensors = broken.state()
    again = simulation(settings, "random", federation=federation)
    again.restore(json.loads(json.dumps(data)), {name: t.clone() for name, t in tensors.items()})
    for same in (one, run(again)):
        assert decisions(same) == decisions(whole)
        assert torch.equal(final_models(same), final_models(whole))


def test_each_rule_makes_other_models() -> None:
    federation = unequal(settings_of("mean"))
    found = [final_models(run(simulation(settings_of(rule), "random", federation=federation))) for rule in RULES]
    assert all(not torch.equal(a, b) for i, a in enumerate(found) for b in found[:i])


@pytest.mark.parametrize("rule", ["mean, by the method's weights"])
@pytest.mark.usefixtures("_weights")
def test_weights_change_what_is_merged_by_rules_that_heed_them(rule: str) -> None:
    settings = settings_of(rule)
    models = final_models(run(simulation(settings, "random")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peer, "handle", Peer.handle.__wrapped__)  # type: ignore[attr-defined]
        assert not torch.equal(models, final_models(run(simulation(settings, "random"))))
    with pytest.raises(SettingsError, match="merge = 'median' knows no weights, but the update of peer 0 says"):
        run(simulation(settings.replace({"merge": "median"}), "random"))


def test_several_seeds_are_merged_as_one_batch() -> None:
    """Law 3: whatever is computed beside a run."""
    settings = Settings().replace({**VALUES, "merge": "trimmed"})
    alone, _ = fake_simulations(settings, "random", [1])
    both, engine = fake_simulations(settings, "random", [0, 1])
    from pens.simulation.simulator import advance_together

    while going := [simulator for simulator in both if not simulator.is_over()]:
        advance_together(going)
    assert {n for n, _ in engine.batches} == {12}
    assert torch.equal(final_models(both[1]), final_models(run(alone[0])))


# --- weights on their way ---------------------------------------------------------------------------------------------


def test_weights_and_questions_cross_files() -> None:
    refs = (ModelRef(PeerId(1), 2),)
    for weights, segments in ((None, ()), ((0.25, 0.75), ()), (None, (("out", (0.5, 0.5)),))):
        update = Update(refs, None, 3, True, "best", True, weights, segments)
        assert decode_job(json.loads(json.dumps(encode_job(update)))) == update
        assert decode_update(json.loads(json.dumps(encode_update(update)))) == update
    made = Blend(ModelRef(PeerId(0), -3), refs, (0.25, 0.5, 0.25), (("out", (0.5, 0.25, 0.25)),), ("head", 1))
    for job in (made, Drop(made.out, "replaced"), replace(update, phases=(Phase(2, ("out",)), Phase(1)))):
        assert decode_job(json.loads(json.dumps(encode_job(job)))) == job
    queries: tuple[Query, ...] = (
        Counts(), Verdicts(), Losses(refs, (), "val", own=True), Distances(refs, "cosine-update"), Losses((), own=True)
    )  # fmt: skip
    for query in queries:
        ask = Ask("how far", query, "updated")
        assert decode_job(json.loads(json.dumps(encode_job(ask)))) == ask
    with pytest.raises(ValueError, match="shorter"):
        decode_job(["update", [[1, 2]], None, 3, True, False])  # as once written


# --- real peers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES[1:])
@pytest.mark.usefixtures("_weights")
def test_real_peers_merge_as_simulated_ones_do(rule: str) -> None:
    """Law 5."""
    settings = settings_of(rule, schedule="async", peers=4, n_peers=2)
    federation = rotated_federation(tiny_dataset(), settings.scenario, 0)
    simulator = run(simulation(settings, "random", federation=federation))
    network = MemoryNetwork(settings.timing.latency, posts=True)
    them = Cluster(settings, "random", federation, 0, network)
    nodes = [them.node(p, known=4, rules=NodeRules(wait_for=3)) for p in range(4)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    for node in nodes:
        me = node.peer.me
        assert node.learners.by_peer[me].merges == simulator.learners.by_peer[me].merges
        simulated = [r.val_loss for r in simulator.learners.history.sorted() if r.peer == me]
        real = list(node.learners.history.column("val_loss"))
        np.testing.assert_allclose(real[: len(simulated)], simulated, rtol=1e-5)


async def run_until(nodes: list[Node], end: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_at(end, stop.set)
    await asyncio.gather(*(node.run(stop) for node in nodes))


PEER = '[peer]\nname = "a"\n[data]\nshare = 1\n[gossip]\nmerge = "{}"\n{}'


def test_a_peers_file_names_a_rule_beside_it(tmp_path: Path) -> None:
    own_rule(tmp_path)
    (tmp_path / "peer.toml").write_text(PEER.format("own.py:Half", "[half]\nown_share = 0.25\n"))
    settings = read_peer_config(tmp_path / "peer.toml").settings
    assert settings.gossip.merge == f"{tmp_path / 'own.py'}:Half"
    rule = MERGE_RULES.find(settings.gossip.merge)
    assert settings.section(rule.section).own_share == 0.25


def test_real_peers_do_not_tell_how_many_samples_they_have(tmp_path: Path) -> None:
    (tmp_path / "peer.toml").write_text(PEER.format("weighted", ""))
    with pytest.raises(SettingsError, match="needs the senders' numbers of training samples, which real peers do not"):
        read_peer_config(tmp_path / "peer.toml")


# --- own rules --------------------------------------------------------------------------------------------------------

OWN = '''
from typing import ClassVar

from pens.settings.section import Section
from pens.merging.rule import LinearRule


class HalfSettings(Section):
    """Half and half."""

    title: ClassVar[str] = "half"
    own_share: float = 0.5
    """The own model's share."""


class Half(LinearRule):
    name = "half"
    about = "the own model and the mean of the others, half and half"
    section = HalfSettings

    def weights(self, merge, segment, options):
        others = len(merge.senders) - 1
        return (options.own_share, *[(1 - options.own_share) / others] * others)
'''


def own_rule(folder: Path) -> Path:
    path = folder / "own.py"
    path.write_text(OWN)
    return path


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Rules that were given by reference: each test has its own file."""
    before = dict(MERGE_RULES._references), dict(MERGE_RULES._found)
    yield
    MERGE_RULES._references, MERGE_RULES._found = before


def tiny_run(values: object, **arguments: object) -> pens.ExperimentResult:
    return pens.run(values, methods="random", model=TinyNet, data=tiny_dataset(), **arguments)  # type: ignore[arg-type]


def test_an_own_rule_is_named_in_toml_on_the_command_line_and_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_rule(tmp_path)
    monkeypatch.chdir(tmp_path)
    python = tiny_run({**TINY, "merge": "own.py:Half", "own_share": 0.75})
    typed = parse_assignments(["merge=own.py:Half", "own_share=0.75"])
    same_result(tiny_run({**TINY, **typed}).runs[0], python.runs[0])
    monkeypatch.chdir("/")
    lines = [f"{key} = {json.dumps(value)}" for key, value in TINY.items()]
    text = "\n".join([*lines, "[half]", "own_share = 0.75", "[gossip]", 'merge = "own.py:Half"'])
    (tmp_path / "file.toml").write_text(text)
    same_result(tiny_run(tmp_path / "file.toml").runs[0], python.runs[0])
    assert resolve_settings(str(tmp_path / "file.toml")).gossip.merge == f"{tmp_path / 'own.py'}:Half"
    half = tiny_run({**TINY, "merge": f"{tmp_path / 'own.py'}:Half"}).runs[0]
    assert not torch.equal(half.models["conv.weight"], python.runs[0].models["conv.weight"])


def test_a_stopped_run_with_an_own_rule_resumes_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_rule(tmp_path)
    monkeypatch.chdir(tmp_path)
    values = {**TINY, "merge": "own.py:Half", "own_share": 0.75}
    unbroken = tiny_run(values).runs[0]
    with pytest.raises(Interrupted):
        tiny_run(values, out=tmp_path / "run", observer=StopAfter(3))
    monkeypatch.chdir("/")
    MERGE_RULES._references, MERGE_RULES._found = {}, {}
    resumed = pens.resume(tmp_path / "run", model=TinyNet, data=tiny_dataset())
    same_result(resumed.runs[0], unbroken)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"merge": "mediam"}, "unknown merge rule 'mediam', did you mean 'median'"),
        ({"merge": "nowhere.py:Mine"}, "there is no file"),
        ({"merge": "trimmed", "trim_share": 0.5}, "trim_share = 0.5: input should be less than 0.5"),
        ({"clip_radius": 0}, "clip_radius = 0: "),
        ({"merge_only": "convolution"}, "merge_only names 'convolution', but no tensor's name begins with it"),
    ],
)
def test_what_cannot_work_is_refused_before_any_work(values: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        tiny_run({**TINY, **values})


def test_what_is_not_merged_stays_a_peers_own() -> None:
    """One round of one epoch of sgd without a step worth the name: bodies become means, heads stay their owners'."""
    values = {**TINY, "rounds": 1, "lr": 1e-12, "optimizer": "sgd", "tested": "last", "n_peers": 5}
    untouched = tiny_run({**values, "merge_only": "conv"}).runs[0].models
    heads, bodies = untouched["out.weight"], untouched["conv.weight"]
    torch.testing.assert_close(bodies, bodies[:1].expand_as(bodies))
    assert all(not torch.allclose(heads[0], head) for head in heads[1:])
    whole = tiny_run(values).runs[0].communication
    part = tiny_run({**values, "merge_only": "conv"}).runs[0].communication
    numbers = {name: model[0].numel() for name, model in untouched.items()}
    assert whole.model_bytes == 4 * sum(numbers.values())
    assert part.model_bytes == 4 * sum(number for name, number in numbers.items() if name.startswith("conv."))
    assert part.sent.tolist() == whole.sent.tolist()
    assert parse_assignments(["merge_only=conv,out"]) == {"merge_only": "conv,out"}
    for said in ("conv,out", "conv, out", ["conv", "out"]):
        assert Settings().replace({"merge_only": said}).gossip.merge_only == ("conv", "out")


@pytest.mark.parametrize("method", ["pens", "dac"])
def test_methods_that_score_models_are_sent_whole_ones(method: str) -> None:
    values = {**TINY, "rounds": 1, "merge_only": "conv"}
    found = pens.run(values, methods=method, model=TinyNet, data=tiny_dataset()).runs[0]
    assert found.communication.model_bytes == 4 * sum(model[0].numel() for model in found.models.values())


class Asking(pens.Gossiping):
    """Asks about what came, and about its own model alone where its method says so."""

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        asked = () if self.peer.plan.own == "own" else models
        return [pens.Ask("losses", pens.Losses(asked, own=True), when="updated"), *super().use(models)]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        return []


@pytest.mark.parametrize(("own", "scores", "refused"), [("own", False, False), ("", False, True), ("", True, False)])
def test_what_was_not_sent_cannot_be_scored(own: str, scores: bool, refused: bool) -> None:
    class Method(pens.Method):
        name = "asking"
        about = "asks about models"

        def plan(self, *given: Any) -> pens.Plan:
            return replace(super().plan(*given), own=own, behaviours={"gossiping": Asking})

    Method.scores = scores
    values = {**TINY, "rounds": 1, "merge_only": "conv"}
    with (
        pytest.raises(SettingsError, match="only what is merged was sent: set scores = True") if refused else no_error()
    ):
        pens.run(values, methods=[Method()], model=TinyNet, data=tiny_dataset())
