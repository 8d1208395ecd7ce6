# SPDX-License-Identifier: Apache-2.0
"""The shortest command that runs an experiment again with the same settings."""

from __future__ import annotations

import shlex
from typing import Any

from pens.errors import SettingsError
from pens.experiment.presets import OWN, PRESETS
from pens.methods.names import check_methods, participants
from pens.partitions.partition import partition_of
from pens.parts import is_place
from pens.settings.keys import flat_values
from pens.settings.toml import assignment
from pens.settings.tree import Settings
from pens.storage.runlog import ExperimentRecord


def command(record: ExperimentRecord) -> str:
    """`pens run …`; the call from Python where the command line cannot express it; or the command that starts each real
    peer, where only these peers can repeat the run."""
    if not can_be_simulated(record):
        return "pens peer CONFIG.toml"
    base, changed = nearest_preset(record.settings)
    if record.own_parts or record.seeds != tuple(range(len(record.seeds))):
        return _python_call(record, base, changed)
    words = ["pens", "run", base, "--methods", ",".join(_named(record)), "--seeds", str(len(record.seeds))]
    if record.data_dir:
        words += ["--data-dir", record.data_dir]
    if changed:
        words += ["--set", *(assignment(key, value) for key, value in changed.items())]
    return shlex.join(words)


def can_be_simulated(record: ExperimentRecord) -> bool:
    """Whether the settings hold all that decides the results, and pens accepts them for that many peers. Simulated runs
    can be repeated; runs of real peers only where the peers held shares of a scenario."""
    if not record.real_peers:
        return True
    if record.own_parts:
        return False
    try:
        partition_of(record.settings).check(record.settings)
        check_methods(record.settings, record.methods, participants(record.settings))
    except SettingsError:
        return False
    return True


def nearest_preset(settings: Settings) -> tuple[str, dict[str, Any]]:
    """The preset with the fewest settings to change, and those settings."""
    fitting = {name: preset for name, preset in PRESETS.items() if name != OWN or is_place(settings.data.source)}
    options = {name: _changes(preset.settings, settings) for name, preset in fitting.items()}
    name = min(options, key=lambda name: len(options[name]))
    return name, options[name]


def _changes(before: Settings, after: Settings) -> dict[str, Any]:
    old, new = flat_values(before), flat_values(after)
    return {key: value for key, value in new.items() if key not in old or old[key] != value}


def _named(record: ExperimentRecord) -> list[str]:
    """The methods as `--methods` takes them."""
    return [record.references.get(name, name) for name in record.methods]


def _python_call(record: ExperimentRecord, base: str, changed: dict[str, Any]) -> str:
    own = {"model": "YourNet", "data": "your_data"}
    arguments = [repr(base), f"methods={_named(record)!r}", f"seeds={list(record.seeds)!r}"]
    arguments += [f"overrides={changed!r}"] if changed else []
    arguments += [f"{part}={own.get(part, '…')}" for part in record.own_parts]
    arguments += [f"data_dir={record.data_dir!r}"] if record.data_dir else []
    return f"pens.run({', '.join(arguments)})"
