# SPDX-License-Identifier: Apache-2.0
"""`pens bench` measures something, and names what it cannot run. No test looks at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import nn

from pens.command_line.main import main
from pens.data.samples import Samples
from pens.engine.batches import SampleStack
from pens.engine.bench import BenchSettings, builtin_factory, count_flops, run_bench
from pens.settings.schema import EngineSettings

OWN = """
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(2, 4, 3, groups=2), nn.Tanh(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10))

class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(7, 4), nn.Linear(4, 10)

    def forward(self, tokens):
        return self.out(self.table(tokens).mean(1))

def of(outputs):
    return nn.Sequential(nn.Flatten(), nn.Linear(72, outputs))

def two():
    return of(2)

def hundred():
    return of(100)

def one():
    return of(1)

def precise():
    return nn.Sequential(nn.Flatten(), nn.Linear(72, 10).double())

broken = nn.Linear
number = 3
"""


class Noted(SampleStack):
    """Writes down the labels it is given."""

    def __init__(self, holders: Sequence[Samples], device: torch.device, labels: list[int]) -> None:
        super().__init__(holders, device)
        labels += self.y.flatten().tolist()


def bench(*arguments: str) -> None:
    main(["bench", "--seconds", "0", "--peers", "2", "--samples", "5", *arguments])


def test_all_operations_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        bench("digits", "--device", "cpu")
    assert exit_.value.code == 0
    printed = capsys.readouterr().out
    for word in ("training", "scoring", "evaluation", "merging", "peer-steps", "ratio", "of peak", "layers.9"):
        assert word in printed


def test_an_own_network_is_told_its_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(SystemExit) as exit_:
        bench("--model", f"{tmp_path / 'own.py'}:Net", "--shape", "2,6,6", "--device", "cpu")
    assert exit_.value.code == 0
    printed = capsys.readouterr().out
    assert "masks from the peer's key" in printed
    assert "its own code, under vmap" in printed
    assert printed.count(" % │") >= 5  # what each layer costs
    assert "Net, 690 numbers" in printed


@pytest.mark.parametrize(
    "arguments", [["{own}:Words", "--shape", "12", "--tokens", "7"], ["{own}:precise", "--shape", "2,6,6"]]
)
def test_networks_of_words_and_of_double_precision_run_too(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(SystemExit) as exit_:
        bench("--device", "cpu", "--model", *(a.replace("{own}", str(tmp_path / "own.py")) for a in arguments))
    assert exit_.value.code == 0


@pytest.mark.parametrize("name", ["two", "hundred"])
def test_a_network_may_have_any_number_of_outputs(name: str, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    with pytest.raises(SystemExit) as exit_:
        bench("--device", "cpu", "--model", f"{tmp_path / 'own.py'}:{name}", "--shape", "2,6,6")
    assert exit_.value.code == 0


def test_labels_are_drawn_from_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    monkeypatch.setattr("pens.engine.bench.SampleStack", lambda holders, device: Noted(holders, device, drawn))
    factory = lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 25))  # noqa: E731
    run_bench(BenchSettings(factory, (4,), 2, 200, 8, "cpu", EngineSettings(), 0))
    assert {min(drawn), max(drawn)} == {0, 24}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["mnist"], "unknown network 'mnist'"),
        (["--model", "nowhere.py:Net"], "there is no file "),
        (["--model", "nowhere"], "expected module:name or file.py:name"),
        (["digits", "--seconds", "-1"], "--seconds -1.0: give at least 0"),
        (["--model", "{own}:number", "--shape", "2,6,6"], "int is no class or function"),
        (["--model", "{own}:broken", "--shape", "2,6,6"], "cannot be made"),
        (["--model", "{own}:Net", "--shape", "2,5,5"], "does not run on samples of shape (2, 5, 5)"),
        (["--model", "{own}:one", "--shape", "2,6,6"], "expected one row of at least 2 class scores"),
        (["--model", "{own}:Net", "--shape", "2,x"], "--shape 2,x: expected sizes"),
        (["digits", "--precision", "fp8"], "--precision fp8: choose from fp32, tf32, bf16"),
        (["digits", "--batch-size", "0"], "--batch-size 0: give at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    with pytest.raises(SystemExit) as exit_:
        bench(*(a.replace("{own}", str(own)) for a in arguments))
    assert exit_.value.code == 2
    assert reason in capsys.readouterr().err


def test_operations_are_counted_as_the_paper_networks_have_them() -> None:
    forward, training = count_flops(builtin_factory("cifar-10"), torch.zeros(2, 3, 32, 32))
    by_hand = 2 * (30 * 30 * 27 * 32 + 13 * 13 * 288 * 64 + 4 * 4 * 576 * 64 + 256 * 64 + 64 * 10)
    assert forward == by_hand
    assert 2 * forward < training < 3 * forward
