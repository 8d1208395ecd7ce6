# SPDX-License-Identifier: Apache-2.0
"""`fedbn`: federated averaging in which batch normalisation stays with each peer (Li et al. 2021, arXiv:2102.07623).

It is `fedavg` with `batch_norm = local`: the server averages all but the scales, shifts and running statistics of batch
normalisation, of which each peer keeps its own. Where features differ between peers (rotations, scanners, sensors),
these numbers fit each peer's own. Peers test the server's model with their own batch normalisation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pens.methods.fedavg import FedAvg


class FedBn(FedAvg):
    """FedAvg of all but batch normalisation."""

    name = "fedbn"
    about = "fedavg in which each peer keeps its own batch normalisation; for networks that have some"
    colours = ("#5b6b00", "#a9c23f")
    needs_batch_norm = True
    further: ClassVar[Mapping[str, object]] = {"batch_norm": "local"}
