# SPDX-License-Identifier: Apache-2.0
"""An attack: what some peers of a simulation send in place of their models, or train on in place of their data.

Attackers behave like all others but for that: they receive, select, merge and train. An attack knows nothing of who
defends, and how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pens import parts, rng
from pens.data.samples import Samples
from pens.data.scenarios import PeerData
from pens.errors import SettingsError
from pens.hooks import calling, refuse_result
from pens.settings.schema import SettingsTree
from pens.settings.section import Section

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sending:
    """What an attacker knows when it sends a model."""

    own: Tensor
    """Its own model, which an honest peer would send.  [number]"""
    receiver: Tensor
    """The receiver's newest model, as others get it: any member can ask for it.  [number]"""
    searching: bool
    """Whether the attacker is still looking for neighbours (step 1 of PENS)."""
    key: int
    """Of random numbers: another one for each model that is sent."""


class Attack:
    """The base of all attacks: it does no harm."""

    name: ClassVar[str] = ""
    """How it is named in settings."""
    about: ClassVar[str] = ""
    """What it does, in a line."""
    section: ClassVar[type[Section] | None] = None
    """The class of its own section of the settings, if it has one."""
    forges: ClassVar[bool] = True
    """Whether attackers send something else than their own models."""

    def send(self, sending: Sending, options: Any) -> Tensor:
        """What is sent in place of the own model: as many numbers.  → [number]

        `options`: the attack's section of the settings, here and below.
        """
        return sending.own

    def train_on(self, data: Samples, num_outputs: int, options: Any) -> Samples:
        """What an attacker trains on in place of its data. `num_outputs`: classes, in classification."""
        return data


@dataclass(frozen=True)
class Attackers:
    """Which peers of a run attack, and how."""

    attack: Attack
    options: Section | None
    peers: frozenset[int]

    def sent(self, sending: Sending) -> Tensor:
        """What one of them sends, checked."""
        with calling(self._who, self.attack, "send"):
            made = self.attack.send(sending, self.options)
        if getattr(made, "shape", None) != sending.own.shape:
            refuse_result(self._who, "send", made, f"return a tensor of {len(sending.own)} numbers, like sending.own")
        return made.to(sending.own)

    def trains_on(self, data: PeerData, num_outputs: int) -> PeerData:
        """What one of them trains on, checked."""
        with calling(self._who, self.attack, "train_on"):
            made = self.attack.train_on(data.train, num_outputs, self.options)
        if not isinstance(made, Samples) or len(made) != len(data.train):
            refuse_result(self._who, "train_on", made, f"return pens.Samples, {len(data.train)} as before")
        return PeerData(made, data.val)

    @property
    def _who(self) -> str:
        return f"attack {self.attack.name!r}"


def attackers_of(settings: SettingsTree, num_peers: int) -> Attackers | None:
    """Those of a run, by its settings; None where nobody attacks."""
    about = settings.attack
    attack: Attack = parts.ATTACKS.find(about.attack)
    if about.attack == "none":
        return None
    options = settings.section(attack.section) if attack.section else None
    named = about.attacking or tuple(
        sorted(rng.stream(0, "attackers").sample(range(num_peers), _count(about.attackers, num_peers)))
    )
    if wrong := [peer for peer in named if not 0 <= peer < num_peers]:
        raise SettingsError(f"attacking = {wrong[0]}, but there are {num_peers} peers, numbered from 0")
    _count(len(set(named)), num_peers)
    return Attackers(attack, options, frozenset(named))


def _count(attackers: int, num_peers: int) -> int:
    if attackers >= num_peers:
        raise SettingsError(f"attackers = {attackers} of {num_peers} peers: leave at least one honest peer to measure")
    return attackers


def check_real(settings: SettingsTree) -> None:
    """Refuse an attack by real peers."""
    if settings.attack.attack != "none":
        raise SettingsError(
            f"attack = {settings.attack.attack!r}, but attacks are for simulations: leave it out for real peers"
        )
