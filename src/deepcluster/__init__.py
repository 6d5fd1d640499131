"""Unsupervised learning of visual features by clustering (Caron et al., ECCV 2018).

Look: compute the network's features of every image. Group: cluster them. Learn: train the network
to predict each image's group from a random crop. And again, with a new head every time, since
cluster 7 is not last epoch's cluster 7. `deepcluster.loop.alternate` is this, in forty lines.

`deepcluster.load(run)` gives what a run has learned: `load("runs/photos-1").embed("new/")`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Looked up when they are asked for: `deepcluster --help` imports no torch.
_PUBLIC = {"load": "deepcluster.collection.model", "DeepCluster": "deepcluster.estimator"}

__all__ = ["DeepCluster", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'deepcluster' has no attribute {name!r}")
