# SPDX-License-Identifier: Apache-2.0
"""What is varied for one method in one scenario, and the values of each trial.

Each setting is drawn from a random stream of its own, which depends on the setting and on the number of the trial
alone. So trial 7 has the same learning rate for every method with the same range, and a further setting in a space
changes nothing for the others.
"""

from __future__ import annotations

from typing import Any

from pens import rng
from pens.comparing.scenes import Scene
from pens.errors import SettingsError
from pens.methods.names import changed_shared, find_method, settings_without_effect
from pens.methods.spec import RunSpec
from pens.settings.keys import flat_name, locate
from pens.settings.space import Dimension, LogUniform, Space
from pens.settings.tree import MethodName, Settings
from pens.tuning.wishes import Wishes

_TENFOLD = 10.0  # the default range of the learning rate: a tenth to ten times what the scenario has


def space_of(scene: Scene, method: MethodName, wishes: Wishes) -> Space:
    """The ranges of one method: defaults, then those of all methods, then its own. Ranges that cannot change anything
    for the method are left out, unless they are its own."""
    settings = scene.methods[method]
    lr = settings.training.lr
    declared = {".".join(locate(name)): of for name, of in find_method(method).space.items()}
    common = {"training.lr": LogUniform(lr / _TENFOLD, lr * _TENFOLD), **declared, **wishes.space}
    own = wishes.of_method.get(method, {})
    for name, of in {**common, **own}.items():
        _check(settings, method, name, of)
    for name in own:
        if not _has_effect(settings, method, name, own[name]):
            raise SettingsError(f"[tuning.method.{method}] {name} has no effect on {method}: leave it out")
    useful = {name: of for name, of in common.items() if _has_effect(settings, method, name, of)}
    return {**useful, **own}


def trial_values(space: Space, number: int) -> dict[str, Any]:
    """What a trial sets. Trial 0 sets nothing: it is the method with the settings that the file gives it."""
    return {name: of.at(rng.stream(0, "tune", name, number).random()) for name, of in space.items()} if number else {}


def _check(settings: Settings, method: MethodName, name: str, of: Dimension) -> None:
    """Refuse a range with values that the setting cannot have, or that would change the data or the network."""
    for value in of.limits:
        try:
            made = settings.replace({name: value})
        except SettingsError as error:
            raise SettingsError(f"the range of {name} for {method}: {error}") from None
        if changed_shared(settings, made):
            raise SettingsError(
                f"the range of {name} for {method}: methods are compared on the same data and network: leave it out"
            )


def _has_effect(settings: Settings, method: MethodName, name: str, of: Dimension) -> bool:
    """Whether a method makes different settings of different values, and does not ignore them as another method's."""
    if flat_name(*locate(name)) in settings_without_effect([method]):
        return False
    made = [RunSpec.of(find_method(method), settings.replace({name: value}), 0).settings for value in of.limits]
    return any(one != made[0] for one in made[1:])
