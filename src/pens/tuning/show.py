# SPDX-License-Identifier: Apache-2.0
"""What tuning found, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from pens.planning.show import plain_table
from pens.settings.keys import flat_name, locate
from pens.settings.toml import assignment
from pens.tuning.record import by_method
from pens.tuning.search import Tried, best_of


def tuning_table(tried: Sequence[Tried]) -> Table:
    """Of each method in each scenario: how many trials are complete, the first and the best of them."""
    table = plain_table()
    for heading in ("scenario", "method"):
        table.add_column(heading, no_wrap=True)
    for heading in ("trials", "as given", "best"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("best with")
    for alike in by_method(tried):
        first, best = alike[0], best_of(alike)
        done = sum(bool(each.found) or bool(each.trial.refused) for each in alike)
        table.add_row(
            escape(first.trial.scenario),
            escape(first.trial.method),
            f"{done} of {len(alike)}",
            _score(first),
            _score(best) if best else "–",
            escape(_values(best)) if best else "–",
        )
    return table


def _score(of: Tried) -> str:
    return "–" if of.score is None else of.measure.words(of.score)


def _values(of: Tried) -> str:
    words = [assignment(flat_name(*locate(name)), value) for name, value in of.trial.values.items()]
    return " ".join(words) or "the settings as given"


def tuning_notes(tried: Sequence[Tried]) -> list[str]:
    """What the numbers mean, and which trials could not be computed."""
    refused = [each.trial for each in tried if each.trial.refused]
    notes = [
        "Mean over peers and seeds of the validation result of the model that early stopping kept. No test data were "
        "read. The best of many trials looks better on validation data than it is: only tests tell how good it is."
    ]
    words = [f"{trial.scenario}, {trial.method}, trial {trial.number}: {trial.refused}" for trial in refused]
    return notes + [f"refused: {each}" for each in words]
