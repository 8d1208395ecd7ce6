# SPDX-License-Identifier: Apache-2.0
"""`pens`: performance-based neighbour selection (paper, Algorithm 2)."""

from __future__ import annotations

from dataclasses import replace

from pens.errors import SettingsError
from pens.methods.method import Method, Participants
from pens.protocol.plan import Plan, Search
from pens.protocol.policies import SelectionRule
from pens.settings.schema import PensSettings, epochs_of_step1
from pens.settings.tree import RunSettings


class Pens(Method):
    """Step 1 finds neighbours, step 2 is gossip among them."""

    name = "pens"
    about = (
        "performance-based neighbour selection: in step 1 a peer scores the models of random others on its own "
        "training data, merges the best and counts whose they were; in step 2 it gossips with those it chose often"
    )
    colours = ("#0067b0", "#56b4e9")
    section = PensSettings
    selects = True
    networked = True

    def check(self, settings: RunSettings, who: Participants) -> None:
        pens, others = settings.pens, who.num_others
        if pens.admit and settings.gossip.schedule == "rounds":
            raise SettingsError(
                "admit = true, but schedule = rounds: in rounds a peer pulls only from its neighbours, so it never "
                "receives a stranger's model: set schedule = async or admit = false"
            )
        if who.lonely is not None:
            who.check_enough("n_sampled", pens.n_sampled)
        if others < min(2, who.num_peers - 1):
            raise SettingsError(
                f"{self.name} compares models, but in this topology a peer hears {others} other: {who.remedy}"
            )
        if others < 2:
            raise SettingsError(
                f"{self.name} compares models, but {who.num_peers} peers hear {others} other: use at least 3 peers, "
                "or other methods, such as local and random"
            )
        who.check_enough("n_sampled", pens.n_sampled)
        if pens.score == "cosine-update" and settings.model.init != "common":
            raise SettingsError(
                f"score = cosine-update, but init = {settings.model.init}: what training changed can be compared where "
                "all peers begin with the same model: set init = common, or score = cosine-weights or l2"
            )
        _check_sampling(pens)

    def plan(self, settings: RunSettings, train: int, val: int, num_peers: int) -> Plan:
        pens, rule = settings.pens, self.selection(settings, num_peers)
        epochs = epochs_of_step1(settings, train, val)
        return replace(
            super().plan(settings, train, val, num_peers),
            search=Search(
                pens.n_sampled, pens.m, pens.step1_rounds, pens.step1_samplings, epochs, rule, pens.alone_rounds
            ),
            keep=pens.step2_model,
            admit=pens.admit and settings.gossip.schedule == "async",
            admission_trials=pens.admission_trials,
        )

    def selection(self, settings: RunSettings, num_peers: int) -> SelectionRule:
        pens = settings.pens
        return SelectionRule(
            pens.m,
            pens.n_sampled,
            num_peers - 1,
            settings.expected,
            pens.neighbours_by,
            pens.expected_offset,
            pens.nobody_found,
        )


def _check_sampling(pens: PensSettings) -> None:
    """Refuse a choice that would tell nothing."""
    if pens.m > pens.n_sampled:
        raise SettingsError(
            f"m = {pens.m}, but only n_sampled = {pens.n_sampled} models are compared: lower m or raise n_sampled"
        )
    if pens.m == pens.n_sampled:
        raise SettingsError(
            f"m = n_sampled = {pens.m}: every sampled model would be selected, so no peer could exceed the expected "
            "count: lower m or raise n_sampled"
        )
