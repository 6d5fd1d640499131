"""Activations -> the matrix that is clustered."""

from deepcluster.features.extract import Looking, RawFeatures, extract
from deepcluster.features.whiten import PCA, Features, Whitening

__all__ = ["PCA", "Features", "Looking", "RawFeatures", "Whitening", "extract"]
