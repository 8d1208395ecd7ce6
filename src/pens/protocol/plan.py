# SPDX-License-Identifier: Apache-2.0
"""What a peer has been told to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pens.protocol.conduct import ConductRules
from pens.protocol.messages import Phase
from pens.protocol.policies import SelectionRule
from pens.settings.schema import Keep


@dataclass(frozen=True)
class Search:
    """PENS step 1 (Algorithm 2)."""

    n_sampled: int
    m: int
    rounds: int
    samplings_per_round: int
    epochs: int
    """May differ between peers, with the number of samples that each holds."""
    rule: SelectionRule
    """Who becomes a neighbour in the end."""
    alone_rounds: int = 0
    """So many updates without others follow, to be compared with what gossip brings."""


@dataclass(frozen=True)
class Plan:
    """What a peer has been told to do. The same for all peers of a run, but for the epochs of step 1."""

    pace: Literal["push", "pull"]
    rounds: int
    """T of gossiping or of training alone."""
    n_peers: int
    epochs: int
    search: Search | None
    """None: no step 1."""
    keep: Keep = "last"
    """Which model is kept aside until step 1 ends, for step 2 to begin with. first and best are not in the paper."""
    accept_anyone: bool = False
    interval: float = 1.0
    """Δ of WAIT(Δ)."""
    jitter: float = 0.0
    give_up: float = 3.0
    """How much longer than the usual number of waits a peer holds out for models that do not come."""
    admit: bool = False
    """Whether strangers may become neighbours in step 2. Only where models are pushed."""
    admission_trials: int = 6
    """After so many, a stranger may become a neighbour."""
    notes: bool = False
    """Whether peers say something beside their models (`Behaviour.note`)."""
    phases: tuple[Phase, ...] = ()
    """What an update trains that says no epochs of its own, in place of all parameters for `epochs`."""
    train_first: bool = True
    """Whether a peer trains before its first exchange."""
    trust: ConductRules | None = None
    """When others are dropped whose models hurt; None: models are trusted."""
    own: Any = None
    """What a method tells behaviours of its own: plain data that never changes, such as its section of the settings."""
    behaviours: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    """Of phases in which a peer behaves otherwise than usual (`BEHAVIOURS`), and of those that the usual plan lacks."""
