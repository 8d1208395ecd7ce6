# SPDX-License-Identifier: Apache-2.0
"""The section on settings: how the runs can be repeated."""

from __future__ import annotations

from pens.report.glossary import own_settings
from pens.report.rerun import can_be_simulated, command, nearest_preset
from pens.report.section import ReportSection
from pens.report.study import Study
from pens.report.words import count, duration, listed, setting_text
from pens.settings.keys import flat_name

_SIMULATED = "The command below simulates them."
_EACH_ITS_OWN = (
    "They cannot be simulated, because their data, or their number, are not those of the settings. The command below "
    "starts each peer again, with its own file."
)


def settings_section(study: Study) -> ReportSection:
    """The settings, the command, and the warnings of the runs."""
    base, changed = nearest_preset(study.settings)
    tree = study.settings.model_dump(mode="json")
    shown = tuple(
        (name, tuple((key, setting_text(value), flat_name(name, key) in changed) for key, value in values.items()))
        for name, values in tree.items()
    )
    warned = [(run, message) for run in study.runs for message in run.warnings]
    notes = [
        f"Settings in bold differ from the preset {base}."
        if changed
        else f"All settings are those of the preset {base}."
    ]
    for method in study.methods:
        if own := own_settings(study.settings, method):
            changes = listed([f"{key} = {setting_text(value)}" for key, value in own.items()])
            notes.append(f"{method} runs with {changes}, in place of the values below.")
    rule = study.settings.pens.step1_epochs
    if rule in ("auto", "authors") and (epochs := {e for run in study.runs for e in run.step1_epochs or ()}):
        each = f"{min(epochs)} to {max(epochs)}, by the number of samples that each peer holds"
        notes.append(f"step1_epochs = {rule} resolved to {each if len(epochs) > 1 else min(epochs)}.")
    took = duration(sum(run.seconds for run in study.runs))
    if study.record.real_peers:
        simulated = can_be_simulated(study.record)
        notes.append(
            f"These runs had real peers and took {took}. The order of messages depends on machines and network, so "
            f"repeated runs differ as much as seeds do. {_SIMULATED if simulated else _EACH_ITS_OWN}"
        )
    else:
        devices = [device for device in dict.fromkeys(run.device for run in study.runs) if device != "cpu"]
        elsewhere = f"; {listed(devices)}, where these ran, rounds differently from other devices" if devices else ""
        notes.append(f"The same settings and seed give the same run on a CPU, to the last bit{elsewhere}.")
        notes.append(f"All runs took {took}.")
    if study.record.own_parts and not study.record.real_peers:
        notes.append(f"The {' and '.join(study.record.own_parts)} came from Python and must be given again.")
    if study.has_own_data:
        notes.append(
            "The data came from users, so the numbers of peers and samples are those of the data, whatever the "
            "settings of the scenario say."
        )
    notes += [f"Warning, {run.method} seed {run.seed}: {message}" for run, message in warned[:8]]
    if len(warned) > 8:
        notes.append(f"… and {len(warned) - 8} more warnings; the result.json of each run holds all of its warnings.")
    answer = f"Run the command below. The runs gave {count(len(warned), 'warning') if warned else 'no warnings'}."
    return ReportSection(
        "settings", "How can this be repeated?", answer, notes=tuple(notes), code=command(study.record), settings=shown
    )
