# SPDX-License-Identifier: Apache-2.0
"""A merge rule is tried out before any work starts, on a few small numbers: what cannot work is told at once.

Each segment is merged three times, with the models of three peers: all together and one by one, which must agree (what
is computed beside a merge must not change it).
"""

from __future__ import annotations

import torch

from pens.engine.layout import Layout
from pens.errors import PensError, SettingsError
from pens.merging.merger import answer, pieces
from pens.merging.rule import LinearRule, Merge, MergeRule, Merging, Rows, check_weights

_MERGES, _MODELS, _NUMBERS = 3, 4, 6


def try_out(merging: Merging, layout: Layout, own_in_merge: bool = True) -> None:
    """Refuse a rule that does not do what rules do, or that names tensors that this network does not have."""
    segments = {piece.segment for piece in pieces(layout, merging, ())}
    for segment in sorted(segments):
        try:
            if isinstance(merging.rule, LinearRule):
                _try_weights(merging, merging.rule, segment, own_in_merge)
            else:
                _try_rows(merging, segment, own_in_merge)
        except PensError:
            raise
        except Exception as error:  # the user's own code
            raise SettingsError(f"merge rule {_name(merging)} fails: {type(error).__name__}: {error}") from error


def _try_weights(merging: Merging, rule: LinearRule, segment: str, own_in_merge: bool) -> None:
    for merge in _merges(own_in_merge):
        weights = rule.weights(merge, segment, merging.options)
        if weights is not None:
            check_weights(weights, len(merge.senders), f"merge rule {_name(merging)}")


def _try_rows(merging: Merging, segment: str, own_in_merge: bool) -> None:
    if type(merging.rule).merge is MergeRule.merge:
        raise SettingsError(f"merge rule {_name(merging)} has no method `merge`, and is no LinearRule: write one")
    merges = _merges(own_in_merge)
    numbers = torch.arange(_MERGES * (_MODELS + 1) * _NUMBERS, dtype=torch.float32)
    models = (numbers * numbers).sin().view(_MERGES, _MODELS + 1, _NUMBERS)
    own, models = models[:, 0], models[:, int(not own_in_merge) :][:, :_MODELS]
    together = answer(merging, Rows(own.clone(), models.clone(), merges, segment))
    for i in range(_MERGES):
        at = slice(i, i + 1)
        alone = answer(merging, Rows(own[at].clone(), models[at].clone(), merges[at], segment))
        if not torch.allclose(together[at], alone, rtol=1e-4, atol=1e-5):
            raise SettingsError(
                f"merge rule {_name(merging)} mixes merges: one alone comes out otherwise than beside others. Axis 0 "
                "of the models counts merges, axis 1 the models of each, axis 2 their numbers"
            )


def _merges(own_in_merge: bool) -> list[Merge]:
    """Peers 0, 1, 2 merge models of peers 3 and on, and their own."""
    found = []
    for me in range(_MERGES):
        others = tuple(range(_MERGES, _MERGES + _MODELS))
        senders = (me, *others[1:]) if own_in_merge else others
        found.append(Merge(me, senders, own_in_merge, tuple(10 + sender for sender in senders)))
    return found


def _name(merging: Merging) -> str:
    return repr(merging.rule.name)
