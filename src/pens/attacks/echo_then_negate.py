# SPDX-License-Identifier: Apache-2.0
"""Become everybody's neighbour, and then do harm.

While neighbours are sought, each peer is sent its own model, which fits its training data better than any other: that
takes no data. Or the attacker sends its own model, as an honest peer does. Later each peer is sent the negative of its
newest model, or something worse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pens.attacks.attack import Attack, Sending
from pens.settings.section import Section

if TYPE_CHECKING:
    from torch import Tensor


class EchoSettings(Section):
    """The attack echo-then-negate."""

    title: ClassVar[str] = "echo-then-negate"
    first: Literal["echo", "honest"] = "echo"
    """What is sent while neighbours are sought: the receiver's own model, or the attacker's, honestly trained."""
    echo_noise: float = 0.0
    """Noise on the echo, as a share of the standard deviation of the model's numbers."""
    then: Literal["negate", "explode", "noise", "own"] = "negate"
    """What is sent once neighbours are chosen: the negative of the receiver's model, that model × 10³⁰, random numbers
    of its size, or the negative of the attacker's own model, which is no copy of the receiver's."""


class EchoThenNegate(Attack):
    """The receiver's own model, until it has chosen its neighbours; then poison."""

    name = "echo-then-negate"
    about = "attackers send each peer its own model until it has chosen its neighbours, and then its negative"
    section = EchoSettings

    def send(self, sending: Sending, options: EchoSettings) -> Tensor:
        if sending.searching and options.first == "honest":
            return sending.own
        if sending.searching:
            return noisy(sending.receiver, options.echo_noise, sending.key)
        if options.then == "explode":
            return sending.receiver * 1e30
        if options.then == "noise":
            return noisy(sending.receiver * 0, 1.0, sending.key, like=sending.receiver)
        return -sending.own if options.then == "own" else -sending.receiver


def noisy(model: Tensor, share: float, key: int, like: Tensor | None = None) -> Tensor:
    """A model with random numbers added, whose deviation is a share of that of the model's, or of `like`'s, numbers."""
    import torch

    generator = torch.Generator().manual_seed(key)
    deviation = float((model if like is None else like).std())
    return model + (share * deviation * torch.randn(len(model), generator=generator)).to(model)
