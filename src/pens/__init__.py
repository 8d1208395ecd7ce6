"""pens: decentralised federated learning in which peers find their own kind.

import pens
result = pens.run("digits", methods=["random", "pens", "oracle"], seeds=3)
for row in result.table:
    print(row.method, row.accuracy)
"""

from pens.config import Settings
from pens.data.samples import Dataset, Samples
from pens.data.scenarios import Federation, PeerData
from pens.errors import PensError
from pens.experiment import resume, run
from pens.results import ExperimentResult, RunResult, Summary
from pens.version import VERSION

__version__ = VERSION

__all__ = [
    "Dataset",
    "ExperimentResult",
    "Federation",
    "PeerData",
    "PensError",
    "RunResult",
    "Samples",
    "Settings",
    "Summary",
    "__version__",
    "resume",
    "run",
]
