# SPDX-License-Identifier: Apache-2.0
"""pens: decentralised federated learning in which peers discover which others have similar data.

import pens
result = pens.run("digits", methods=["random", "pens", "oracle"], seeds=3)
for row in result.table:
    print(row.method, row.accuracy)

Names are imported on first use: `import pens` alone loads neither PyTorch nor anything else that takes time.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pens.version import VERSION
from pens_fl import warn_if_shared as _warn_if_shared

if TYPE_CHECKING:
    from pens.data.samples import Dataset, Samples
    from pens.data.scenarios import Federation, PeerData
    from pens.errors import PensError
    from pens.experiment.interface import resume, run
    from pens.measuring.results import ExperimentResult, RunResult, Summary
    from pens.methods.method import Method
    from pens.partitions.partition import Partition
    from pens.settings.tree import Settings
    from pens.topologies.topology import Topology

__version__ = VERSION

__all__ = [
    "Dataset",
    "ExperimentResult",
    "Federation",
    "Method",
    "Partition",
    "PeerData",
    "PensError",
    "RunResult",
    "Samples",
    "Settings",
    "Summary",
    "Topology",
    "__version__",
    "resume",
    "run",
]

_MODULE_OF = {
    "Dataset": "pens.data.samples",
    "ExperimentResult": "pens.measuring.results",
    "Federation": "pens.data.scenarios",
    "Method": "pens.methods.method",
    "Partition": "pens.partitions.partition",
    "PeerData": "pens.data.scenarios",
    "PensError": "pens.errors",
    "RunResult": "pens.measuring.results",
    "Samples": "pens.data.samples",
    "Settings": "pens.settings.tree",
    "Summary": "pens.measuring.results",
    "Topology": "pens.topologies.topology",
    "resume": "pens.experiment.interface",
    "run": "pens.experiment.interface",
}

_warn_if_shared(__file__)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'pens' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value  # so that this is asked once
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
