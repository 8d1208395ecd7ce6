# SPDX-License-Identifier: Apache-2.0
"""PENS step 1 (Algorithm 2): compare the models of random others, and choose neighbours by how often each did well."""

from __future__ import annotations

from typing import Any, ClassVar

from pens.protocol.behaviour import Gathering, Talking
from pens.protocol.gossiping import Gossiping
from pens.protocol.messages import Action, Ask, Chose, Compare, Counts, ModelRef, PeerId, Update
from pens.protocol.plan import Search
from pens.protocol.policies import choose_neighbours
from pens.protocol.situation import Situation


class Searching(Gathering):
    """Compare n_sampled models at a time, count the top m, and merge those of a round's last sampling.

    Everybody is a neighbour as long as the search goes on. `plan.search` says how long that is.
    """

    phase: ClassVar[str] = "searching"
    samplings = 0
    """Of the current round."""

    @property
    def progress(self) -> tuple[int, int]:
        """Samplings."""
        each = self._search.samplings_per_round
        return (self.peer.updates + self.peer.busy) * each + self.samplings, self._search.rounds * each

    @property
    def _search(self) -> Search:
        assert self.peer.plan.search, "a peer that searches needs to be told how"
        return self.peer.plan.search

    def wanted(self) -> int:
        return self._search.n_sampled

    def taken(self) -> int:
        return max(1, self.threshold())

    def accepts(self, sender: PeerId) -> bool:
        return True

    def use(self, models: tuple[ModelRef, ...]) -> list[Action]:
        """Algorithm 2, n_sampled models received."""
        search = self._search
        self.samplings += 1
        if self.samplings < search.samplings_per_round:
            more = self.begin_round() if self.peer.plan.pace == "pull" else self.use_if_enough()
            return [Compare(models, search.m), *more]
        self.samplings = 0
        keep = self.peer.plan.keep
        return [self.peer.update(models, may_stop=False, top_m=search.m, epochs=search.epochs, keep=keep)]

    def on_updated(self) -> list[Action]:
        self.peer.updates += 1
        return self.peer.enter("selecting") if self.peer.updates >= self._search.rounds else self.use_if_enough()

    def hold_out(self) -> list[Action]:
        """Not in the listing: whoever waits in vain ends step 1 with what it has counted, and where that is nothing,
        with what it has received. About one model comes per wait, so waits can be counted."""
        peer, search = self.peer, self._search
        peer.waits += 1
        waits = self.usual_waits() * search.rounds * search.samplings_per_round
        if peer.busy or peer.waits < peer.plan.give_up * waits:
            return []
        return [*self._compare_the_few(), *peer.enter("selecting")]

    def _compare_the_few(self) -> list[Action]:
        """Step 1 ends before n_sampled models have ever come: compare those that have.

        The top m of m models or fewer would be no choice. Where strangers may become neighbours later, nobody is taken
        for want of others.
        """
        peer, search = self.peer, self._search
        enough = search.m + 1 if peer.plan.admit else 1
        if peer.updates or self.samplings or peer.num_saved < enough:
            return []
        return [Compare(peer.take(peer.num_saved), search.m)]

    def state(self) -> dict[str, Any]:
        return {"samplings": self.samplings}

    def restore(self, state: dict[str, Any]) -> None:
        self.samplings = state["samplings"]


def begin_step2(peer: Situation) -> list[Action]:
    """Gossip with the neighbours. Where step 2 does not begin with what step 1 ended with, the first update trains the
    model that was kept aside."""
    goes_back = peer.plan.keep != "last"
    return [*peer.enter("gossiping"), *([peer.update((), may_stop=True, from_kept=True)] if goes_back else [])]


class Selecting(Talking):
    """The end of step 1: wait for the counts, and choose the neighbours by them (SELECTNEIGHBORS)."""

    phase: ClassVar[str] = "selecting"

    def begin(self) -> list[Action]:
        return [Ask("counts", Counts())]

    def on_answered(self, name: str, answer: Any) -> list[Action]:
        peer, search = self.peer, self.peer.plan.search
        assert search
        selection = choose_neighbours(answer, search.rule)
        peer.neighbours = tuple(each for each in selection.neighbours if not peer.conduct.is_dropped(each))
        chose = Chose(peer.neighbours, "fallback" if selection.fallback else "selection")
        if not peer.neighbours:
            return [chose, *peer.enter("gossiping" if peer.plan.admit else "alone")]
        return [chose, *(peer.enter("trying") if search.alone_rounds else begin_step2(peer))]


class Trying(Gossiping):
    """Not in the paper: between the two steps a peer trains without others for some updates. The best model of these is
    what it can reach alone; gossip has to bring more (docs/decisions/0040). Meanwhile it serves its model as usual.
    """

    phase: ClassVar[str] = "trying"

    @property
    def progress(self) -> tuple[int, int]:
        return self.peer.updates, self._rounds

    @property
    def _rounds(self) -> int:
        assert self.peer.plan.search, "a peer that tries what it can do alone has searched"
        return self.peer.plan.search.alone_rounds

    def begin(self) -> list[Action]:
        return [] if self.peer.plan.pace == "pull" else [self._train()]

    def begin_round(self) -> list[Action]:
        return [self._train()]

    def _train(self) -> Update:
        """The first update trains the model that the peer began with: what step 1 made of it knows the data of other
        clusters, too. The model that was kept aside for step 2 stays there."""
        goes_back = self.peer.plan.keep != "last"
        return self.peer.update(
            (),
            may_stop=False,
            keep="first" if goes_back else "last",
            from_first=goes_back and not self.peer.updates,
            apart=True,
        )

    def on_updated(self) -> list[Action]:
        self.peer.updates += 1
        if self.peer.updates >= self._rounds:
            return begin_step2(self.peer)
        return self.begin()
