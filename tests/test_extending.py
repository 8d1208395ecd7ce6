# SPDX-License-Identifier: Apache-2.0
"""docs/extending.md does what it says: each file of the page is extracted, and each command runs. The page and the
examples use the stable names of `pens` alone."""

from __future__ import annotations

import ast
import json
import math
import re
import runpy
import shlex
from pathlib import Path

import pytest

import pens
from pens.command_line.main import main
from pens.errors import Interrupted, SettingsError
from pens.experiment.observer import Observer
from pens.network.node.parts import NodeRules
from pens.network.transport.memory import MemoryNetwork
from pens.partitions.rotation import rotated_federation
from pens.parts import ATTACKS, LABEL_LAWS, MERGE_RULES, METHODS, PARTITIONS, SHIFTS, SIZE_LAWS, TASKS, TOPOLOGIES
from pens.protocol.messages import Answered, Ask, Losses, ModelRef, PeerId, Pulled, Start, Update, Updated
from pens.protocol.peer import Peer
from pens.settings.tree import Settings
from pens.topologies.topology import build_graph
from tests.conftest import TINY, TinyNet, tiny_dataset
from tests.experiment.test_experiment import same_result
from tests.methods.specs import spec_of
from tests.network.node.test_node import own, run_until
from tests.network.nodes import Cluster
from tests.network.virtual import run_virtually
from tests.simulations import Log, decisions, final_models, run, simulation

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`(\w+\.py)`:\n\n```python\n(.*?)```$", PAGE, re.DOTALL | re.MULTILINE))
REGISTRIES = (METHODS, PARTITIONS, LABEL_LAWS, SIZE_LAWS, SHIFTS, TOPOLOGIES, MERGE_RULES, TASKS, ATTACKS)
RECIPES = re.findall(r"```sh\n(.*?)```(?:(?:(?!```).)*?```text\n(.*?)```)", PAGE, re.DOTALL)
"""(commands, the first words of rows that they print)"""


def forget() -> None:
    """Parts that were given so far, as another process would not know them."""
    for registry in REGISTRIES:
        for of in (registry._found, registry._references, registry._given):
            of.clear()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all files of the page. What a test finds there is forgotten afterwards."""
    for registry in REGISTRIES:
        for name in ("_found", "_references", "_given"):
            monkeypatch.setattr(registry, name, {})
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


EXAMPLES = {str(path.relative_to(ROOT)): path for path in (ROOT / "examples").rglob("*.py")}
SOURCES = {**FILES, **{name: path.read_text(encoding="utf-8") for name, path in EXAMPLES.items()}}


def unstable_names(source: str) -> set[str]:
    """What a source uses of pens that may move: modules, and names that are not public."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("pens.")}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "pens":
            found |= {f"{node.module}.{alias.name}" for alias in node.names} - {f"pens.{name}" for name in pens.__all__}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "pens":
            found |= {f"pens.{node.attr}"} - {f"pens.{name}" for name in pens.__all__}
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_the_page_and_the_examples_use_stable_names_alone(name: str) -> None:
    assert not unstable_names(SOURCES[name])


def test_unstable_names_are_seen_however_they_are_used() -> None:
    uses = "import pens.nets", "from pens.nets import PaperCNN", "from pens import nets", "import pens\npens.nets"
    assert all(unstable_names(use) for use in uses)
    assert not unstable_names("import numpy\nimport pens\nfrom pens import Section, rng\npens.Method, numpy.pens")


def test_the_page_lists_all_stable_names() -> None:
    rows = re.findall(r"^\|.*\|$", PAGE.split("## The stable names")[1].split("\n## ")[0], re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == {name for name in pens.__all__ if name != "__version__"}


def execute(command: str) -> None:
    program, *words = shlex.split(command)
    forget()
    if program == "python":
        runpy.run_path(words[0], run_name="__main__")
        return
    assert program == "pens", command
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code in (0, None), command


def test_every_file_of_the_page_is_short_and_run() -> None:
    assert len(FILES) == PAGE.count("```python")
    assert len(RECIPES) == PAGE.count("```sh") == PAGE.count("```text")
    commands = "".join(commands for commands, _ in RECIPES)
    for name, text in FILES.items():
        assert len(text.splitlines()) < 40, name
        assert name in commands


@pytest.mark.parametrize(("commands", "rows"), RECIPES, ids=[re.findall(r"\w+\.py", of)[0] for of, _ in RECIPES])
def test_the_commands_of_the_page_print_what_it_says(
    commands: str, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in commands.splitlines():
        execute(command)
    printed = capsys.readouterr().out
    for row in rows.split():
        assert re.search(rf"^(│ )?{re.escape(row)}\b", printed, re.MULTILINE), printed


def test_a_report_of_a_recipe_tells_what_its_method_is(folder: Path) -> None:
    pens.run(
        "digits", methods=f"{folder}/nearby.py:Nearby", overrides=TINY, model=TinyNet, data=tiny_dataset(), out="r"
    )
    execute("pens report r --out page.html")
    assert "gossip with the four nearest peers by number" in Path("page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("reference", "values"),
    [("nearby.py:Nearby", {}), ("fitting.py:Fitting", {}), ("shared_body.py:SharedBody", {"shared-body.head": "out"})],
)
def test_real_peers_follow_the_methods_of_the_page(reference: str, values: dict[str, object], folder: Path) -> None:
    """Law 5, with nodes in memory."""
    method = METHODS.find(reference).name
    settings = Settings().replace({**TINY, "schedule": "async", "rounds": 4, **values})
    federation = rotated_federation(tiny_dataset(), settings.scenario, 3)
    simulated, real = Log(), Log()
    simulator = run(simulation(settings, method, seed=3, federation=federation, log=simulated))
    cluster = Cluster(settings, method, federation, 3, MemoryNetwork(settings.timing.latency, posts=True))
    nodes = [cluster.node(p, known=6, trace=real, rules=NodeRules(wait_for=5)) for p in range(6)]
    run_virtually(run_until(nodes, simulator.now + 1e-6))
    for p in range(6):
        assert own(simulated, p, simulator.now) == own(real, p, simulator.now)
    assert simulated.entries


def in_first_round(reference: str, num_peers: int = 8) -> Peer:
    """Peer 0 of so many, before its first merge."""
    spec = spec_of(METHODS.find(reference).name, Settings().replace({**TINY, "peers": num_peers}))
    others = tuple(PeerId(peer) for peer in range(1, num_peers))
    peer = Peer(PeerId(0), 1, spec.plan(9, 5, num_peers=num_peers), spec.method.reachable(PeerId(0), others, ()))
    peer.handle(Start())
    peer.handle(Updated())
    return peer


def models(*owners: int) -> tuple[ModelRef, ...]:
    return tuple(ModelRef(PeerId(owner), 1) for owner in owners)


def test_a_ring_of_the_four_nearest() -> None:
    assert in_first_round("nearby.py:Nearby").reachable == [1, 2, 6, 7]
    assert in_first_round("nearby.py:Nearby", 4).reachable == [1, 2, 3]
    with pytest.raises(SettingsError, match="awaited = 5, but a peer reaches at most 4 others"):
        pens.run({**TINY, "awaited": 5}, methods="nearby", model=TinyNet, data=tiny_dataset())


def test_models_count_by_how_well_they_fit() -> None:
    """Losses of 0 and ln 2: weights in proportion to 1 (own), 1 and 1/2. Then of ln 4 and 0, after which the means are
    ln 2 and ln √2: 1, 1/2 and 1/√2."""
    peer, came = in_first_round("fitting.py:Fitting"), models(1, 2)
    assert peer.handle(Pulled(came)) == [Ask("fit", Losses(came))]
    again = Peer(PeerId(0), 1, peer.plan, peer.reachable)
    again.restore(json.loads(json.dumps(peer.state())))
    for it in (peer, again):
        (update,) = it.handle(Answered("fit", (0.0, math.log(2))))
        assert isinstance(update, Update)
        assert (update.models, update.segment_weights) == (came, ())
        assert update.weights == pytest.approx((0.4, 0.4, 0.2))
        it.handle(Updated())
        it.handle(Pulled(came))
        (update,) = it.handle(Answered("fit", (math.log(4), 0.0)))
        assert isinstance(update, Update)
        assert update.weights == pytest.approx([part / (1.5 + 0.5**0.5) for part in (1, 0.5, 0.5**0.5)])


def test_heads_are_mostly_a_peers_own() -> None:
    (update,) = in_first_round("shared_body.py:SharedBody").handle(Pulled(models(1, 2)))
    assert isinstance(update, Update)
    ((prefix, weights),) = update.segment_weights
    assert (prefix, update.weights) == ("layers.9", None)
    assert weights == pytest.approx((0.9, 0.05, 0.05))


def test_two_cliques_and_two_random_bridges() -> None:
    settings = Settings().replace({"topology": "cliques.py:Cliques", "bridges": 2})
    across = set()
    for seed in range(4):
        graph = build_graph(settings, 6, seed)
        assert all({0, 1, 2} - {p} <= set(graph[p]) for p in range(3))
        assert sum(map(len, graph)) == 2 * (3 + 3 + 2)
        across.add(tuple((a, b) for a in range(3) for b in graph[a] if b > 2))
        assert graph == build_graph(settings, 6, seed)
    assert len(across) > 1
    with pytest.raises(SettingsError, match="bridges = 10, but 6 peers have no so many pairs"):
        build_graph(settings.replace({"bridges": 10}), 6, 0)


@pytest.mark.parametrize("own_in_merge", [True, False])
def test_the_closest_half_and_the_own_model_where_it_is_merged(own_in_merge: bool) -> None:
    """Of 1, 3 and 9 the two closest to 0 are 1 and 3: their mean is 2, and with the own model 4/3."""
    import torch

    rule = MERGE_RULES.find("closest.py:Closest")
    numbers = torch.tensor([[0.0] * own_in_merge + [9.0, 1.0, 3.0]])[:, :, None]
    about = [pens.Merge(0, (*([0] * own_in_merge), 1, 2, 3), own_in_merge)]
    merged = rule.merge(pens.Rows(torch.zeros(1, 1), numbers, about), None)
    assert merged.tolist() == [[pytest.approx(4 / 3 if own_in_merge else 2)]]


class StopAfter(Observer):
    """Stops a run after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def progressed(self, method: str, seed: int, fraction: float) -> None:
        self.left -= 1
        if not self.left:
            raise Interrupted("enough")


@pytest.mark.parametrize("schedule", ["rounds", "async"])
@pytest.mark.parametrize("steps", [3, 6])
def test_a_method_that_asks_in_every_round_resumes_as_if_it_were_never_stopped(schedule: str, steps: int) -> None:
    """Law 4: stopped between a question and its answer, too."""
    given = {"methods": "fitting.py:Fitting", "model": TinyNet, "data": tiny_dataset(), "device": "cpu"}
    values = {**TINY, "schedule": schedule, "checkpoint_every_s": 0}
    whole = pens.run(values, **given)  # type: ignore[arg-type]
    with pytest.raises(Interrupted):
        pens.run(values, **given, out="run", observer=StopAfter(steps))  # type: ignore[arg-type]
    forget()
    resumed = pens.resume("run", model=TinyNet, data=tiny_dataset(), device="cpu")
    same_result(resumed.runs[0], whole.runs[0])


def test_one_update_at_a_time_gives_the_same_decisions(folder: Path) -> None:
    """Law 2."""
    method = METHODS.find("fitting.py:Fitting").name
    settings = Settings().replace({**TINY, "schedule": "async"})
    batched = run(simulation(settings, method))
    single = run(simulation(settings.replace({"max_batch": 1}), method))
    assert decisions(batched) == decisions(single)
    assert final_models(batched).allclose(final_models(single), atol=1e-5)
