# SPDX-License-Identifier: Apache-2.0
"""The average weighted by numbers of samples, as in FedAvg (McMahan et al. 2017)."""

from __future__ import annotations

from typing import Any

from pens.errors import SettingsError
from pens.merging.rule import LinearRule, Merge


class Weighted(LinearRule):
    """A model counts as much as its owner has training samples: 30 and 10 samples are weights of 3/4 and 1/4."""

    name = "weighted"
    about = "the average weighted by the senders' numbers of training samples"
    needs_samples = True

    def weights(self, merge: Merge, segment: str, options: Any) -> list[float]:
        if merge.samples is None:
            raise SettingsError(
                "merge = 'weighted' needs the senders' numbers of training samples, which are not known here: "
                "set merge = 'mean'"
            )
        total = sum(merge.samples)
        return [count / total for count in merge.samples]
