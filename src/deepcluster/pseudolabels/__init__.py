"""Groups -> a training set."""

from deepcluster.pseudolabels.batches import Batch, training_batches
from deepcluster.pseudolabels.draw import Draw, Draws

__all__ = ["Batch", "Draw", "Draws", "training_batches"]
