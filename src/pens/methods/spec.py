# SPDX-License-Identifier: Apache-2.0
"""What decides one run. The only place where a method is applied to an experiment's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pens.errors import SettingsError
from pens.hooks import calling, refuse_result
from pens.methods.method import Method
from pens.protocol.conduct import ConductRules
from pens.protocol.plan import Plan
from pens.protocol.policies import SelectionRule
from pens.settings.tree import RunSettings, Settings

if TYPE_CHECKING:
    from pens.learning.rules import LearningRules


@dataclass(frozen=True)
class RunSpec:
    """A method, what it made of the settings, and a seed. `RunSpec.of` makes it."""

    method: Method
    settings: RunSettings
    seed: int

    @staticmethod
    def of(method: Method, settings: Settings, seed: int) -> RunSpec:
        """One run of an experiment with these settings."""
        return RunSpec(method, _resolved(method, settings), seed)

    def plan(self, train: int, val: int, num_peers: int) -> Plan:
        """What a peer that holds so many training and validation samples is told to do, where there are so many for it
        (`Method.plan`)."""
        with calling(self._whose, self.method, "plan"):
            made = self.method.plan(self.settings, train, val, num_peers)
        return self._wary(self._checked("plan", made))

    @property
    def num_servers(self) -> int:
        """Participants without data."""
        with calling(self._whose, self.method, "servers"):
            made = self.method.servers(self.settings)
        if type(made) is not int or made < 0 or bool(made) != bool(self.method.num_servers):
            remedy = f"return a whole number, and 0 where num_servers = 0; here num_servers = {self.method.num_servers}"
            refuse_result(self._whose, "servers", made, remedy)
        return made

    def server_plan(self, num_peers: int) -> Plan:
        """What a server of so many peers is told to do."""
        with calling(self._whose, self.method, "server_plan"):
            made = self.method.server_plan(self.settings, num_peers)
        return self._wary(self._checked("server_plan", made))

    def _wary(self, plan: Plan) -> Plan:
        """The plan of a peer that does not trust others' models, where the settings say so."""
        trust = self.settings.trust
        if trust.gate != "on":
            return plan
        return replace(plan, trust=ConductRules(trust.strikes, trust.dropped_for))

    def segments(self) -> Sequence[str]:
        """The parameters for which its peers say weights of their own, as far as they are known."""
        with calling(self._whose, self.method, "segments"):
            said = self.method.segments(self.settings)
        if not isinstance(said, Sequence) or isinstance(said, str) or not all(isinstance(each, str) for each in said):
            refuse_result(self._whose, "segments", said, 'return a list of beginnings of names, such as ["layers.9"]')
        return said

    @property
    def _whose(self) -> str:
        return f"method {self.method.name!r}"

    def _checked(self, function: str, plan: Plan) -> Plan:
        if not isinstance(plan, Plan):
            remedy = f"return a pens.Plan, as super().{function}(…) does; dataclasses.replace(plan, …) changes one"
            refuse_result(self._whose, function, plan, remedy)
        if not isinstance(plan.behaviours, Mapping) or not all(map(callable, plan.behaviours.values())):
            raise SettingsError(
                f"{self._whose}: its {function} has behaviours = {plan.behaviours!r:.60}: give a dict of classes by "
                'phase, such as {"gossiping": Mine}'
            )
        for phase, made in plan.behaviours.items():
            if phase != (named := getattr(made, "phase", phase)):
                raise SettingsError(
                    f"method {self.method.name!r}: its plan has a behaviour for the phase {phase!r}, which is for "
                    f"{named!r}: name both alike"
                )
        return plan

    def learning(self) -> LearningRules:
        """What all peers of the run have in common when they compute."""
        from pens.learning.rules import LearningRules

        with calling(self._whose, self.method, "learning"):
            rules = self.method.learning(self.settings, self.seed)
        if not isinstance(rules, LearningRules):
            remedy = "return what super().learning(settings, seed) gives; dataclasses.replace(…) changes it"
            refuse_result(self._whose, "learning", rules, remedy)
        return self._trusting(rules)

    def _trusting(self, rules: LearningRules) -> LearningRules:
        """With what the settings say of others' models."""
        from pens.learning.trust import TrustRules

        trust, wire = self.settings.trust, self.settings.gossip.wire
        return replace(rules, trust=TrustRules(trust.gate_margin, wire)) if trust.gate == "on" else rules

    def selection(self, num_peers: int) -> SelectionRule | None:
        """What makes a neighbour at the end of step 1."""
        with calling(self._whose, self.method, "selection"):
            rule = self.method.selection(self.settings, num_peers)
        if rule is not None and not isinstance(rule, SelectionRule):
            refuse_result(
                self._whose, "selection", rule, "return what super().selection(settings, num_peers) gives, or None"
            )
        return rule


def _resolved(method: Method, settings: Settings) -> RunSettings:
    if not isinstance(settings, Settings):
        raise TypeError(f"{type(settings).__name__} in place of Settings: a method is applied once")
    with calling(f"method {method.name!r}", method, "resolve"):
        made = method.resolve(settings)
    if not isinstance(made, Settings):
        raise SettingsError(
            f"method {method.name!r}: its resolve returned a {type(made).__name__}: return pens.Settings, "
            "as settings.replace does"
        )
    return RunSettings.model_construct(**dict(made))
