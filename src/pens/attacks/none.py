# SPDX-License-Identifier: Apache-2.0
"""Nobody attacks."""

from __future__ import annotations

from pens.attacks.attack import Attack


class Honest(Attack):
    """The default."""

    name = "none"
    about = "nobody attacks"
    forges = False
