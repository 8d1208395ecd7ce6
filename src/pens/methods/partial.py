# SPDX-License-Identifier: Apache-2.0
"""What methods have in common that share the body of a network, and whose peers keep their heads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pens.protocol.messages import Phase

if TYPE_CHECKING:
    from pens.learning.rules import LearningRules

Head = tuple[str, ...]
"""The beginnings of the names of the head's parameters; "auto": the last layer that is trained."""


def head_then_body(head: Head, head_epochs: int, body_epochs: int) -> tuple[Phase, ...]:
    """First the head is trained while the body stands still, then the body while the head does."""
    return Phase(head_epochs, only=head), Phase(body_epochs, without=head)


def keeping(rules: LearningRules, head: Head) -> LearningRules:
    """Rules by which a peer's head is neither merged nor sent."""
    return replace(rules, merging=replace(rules.merging, own=head))
