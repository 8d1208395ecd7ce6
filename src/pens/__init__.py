# SPDX-License-Identifier: Apache-2.0
"""pens: decentralised federated learning in which peers discover which others have similar data.

import pens
result = pens.run("digits", methods=["random", "pens", "oracle"], seeds=3)
for row in result.table:
    print(row.method, row.accuracy)

The names below are the stable ones, for users and for authors of parts (docs/extending.md); the modules that they come
from may move. Names are imported on first use: `import pens` alone loads neither PyTorch nor anything else that takes
time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pens.version import VERSION
from pens_fl import warn_if_shared as _warn_if_shared

if TYPE_CHECKING:
    from pens import rng
    from pens.attacks.attack import Attack, Sending
    from pens.data.samples import Array, Dataset, Samples
    from pens.data.scenarios import Federation, PeerData
    from pens.errors import DataError, NotEnoughData, PensError, PensWarning, SettingsError
    from pens.experiment.interface import resume, run
    from pens.experiment.loading import load, load_all
    from pens.experiment.observer import Observer
    from pens.measuring.results import ExperimentResult, RunResult, Summary
    from pens.merging.rule import LinearRule, Merge, MergeRule, Rows
    from pens.methods.method import Method, Participants
    from pens.partitions.axes import LabelLaw, Shift, SizeLaw, View
    from pens.partitions.cells import federation_of
    from pens.partitions.labels import apportion, count_labels, within
    from pens.partitions.partition import Partition
    from pens.protocol.alone import Alone
    from pens.protocol.behaviour import Behaviour
    from pens.protocol.gossiping import Gossiping
    from pens.protocol.messages import (
        Action,
        Ask,
        Distances,
        Drop,
        Finish,
        Losses,
        ModelRef,
        Note,
        PeerId,
        Phase,
        Request,
        Send,
        Update,
        WakeAfter,
    )
    from pens.protocol.plan import Plan
    from pens.protocol.situation import Situation
    from pens.settings.schema import SettingsTree
    from pens.settings.section import Count, Fraction, NotNegative, Positive, Section, Whole
    from pens.settings.space import Choices, LogUniform, Uniform, WholeNumbers
    from pens.settings.tree import RunSettings, Settings
    from pens.tasks.class_task import ClassTask
    from pens.tasks.metric import Metric
    from pens.tasks.task import Task
    from pens.topologies.topology import Graph, Topology, graph_of

__version__ = VERSION

__all__ = [
    "Action",
    "Alone",
    "Array",
    "Ask",
    "Attack",
    "Behaviour",
    "Choices",
    "ClassTask",
    "Count",
    "DataError",
    "Dataset",
    "Distances",
    "Drop",
    "ExperimentResult",
    "Federation",
    "Finish",
    "Fraction",
    "Gossiping",
    "Graph",
    "LabelLaw",
    "LinearRule",
    "LogUniform",
    "Losses",
    "Merge",
    "MergeRule",
    "Method",
    "Metric",
    "ModelRef",
    "NotEnoughData",
    "NotNegative",
    "Note",
    "Observer",
    "Participants",
    "Partition",
    "PeerData",
    "PeerId",
    "PensError",
    "PensWarning",
    "Phase",
    "Plan",
    "Positive",
    "Request",
    "Rows",
    "RunResult",
    "RunSettings",
    "Samples",
    "Section",
    "Send",
    "Sending",
    "Settings",
    "SettingsError",
    "SettingsTree",
    "Shift",
    "Situation",
    "SizeLaw",
    "Summary",
    "Task",
    "Topology",
    "Uniform",
    "Update",
    "View",
    "WakeAfter",
    "Whole",
    "WholeNumbers",
    "__version__",
    "apportion",
    "count_labels",
    "federation_of",
    "graph_of",
    "load",
    "load_all",
    "resume",
    "rng",
    "run",
    "within",
]

_NAMES_OF = {
    "pens": ("rng",),
    "pens.attacks.attack": ("Attack", "Sending"),
    "pens.data.samples": ("Array", "Dataset", "Samples"),
    "pens.data.scenarios": ("Federation", "PeerData"),
    "pens.errors": ("DataError", "NotEnoughData", "PensError", "PensWarning", "SettingsError"),
    "pens.experiment.interface": ("resume", "run"),
    "pens.experiment.loading": ("load", "load_all"),
    "pens.experiment.observer": ("Observer",),
    "pens.measuring.results": ("ExperimentResult", "RunResult", "Summary"),
    "pens.merging.rule": ("LinearRule", "Merge", "MergeRule", "Rows"),
    "pens.methods.method": ("Method", "Participants"),
    "pens.partitions.axes": ("LabelLaw", "Shift", "SizeLaw", "View"),
    "pens.partitions.cells": ("federation_of",),
    "pens.partitions.labels": ("apportion", "count_labels", "within"),
    "pens.partitions.partition": ("Partition",),
    "pens.protocol.alone": ("Alone",),
    "pens.protocol.behaviour": ("Behaviour",),
    "pens.protocol.gossiping": ("Gossiping",),
    "pens.protocol.messages": (
        "Action",
        "Ask",
        "Distances",
        "Drop",
        "Finish",
        "Losses",
        "ModelRef",
        "Note",
        "PeerId",
        "Phase",
        "Request",
        "Send",
        "Update",
        "WakeAfter",
    ),
    "pens.protocol.plan": ("Plan",),
    "pens.protocol.situation": ("Situation",),
    "pens.settings.schema": ("SettingsTree",),
    "pens.settings.section": ("Count", "Fraction", "NotNegative", "Positive", "Section", "Whole"),
    "pens.settings.space": ("Choices", "LogUniform", "Uniform", "WholeNumbers"),
    "pens.settings.tree": ("RunSettings", "Settings"),
    "pens.tasks.class_task": ("ClassTask",),
    "pens.tasks.metric": ("Metric",),
    "pens.tasks.task": ("Task",),
    "pens.topologies.topology": ("Graph", "Topology", "graph_of"),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

_warn_if_shared(__file__)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'pens' has no attribute {name!r}")
    module = _MODULE_OF[name]
    value = getattr(import_module(module), name) if "." in module else import_module(f"{module}.{name}")
    globals()[name] = value  # so that this is asked once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
