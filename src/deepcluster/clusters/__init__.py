"""Matrix -> groups. Knows nothing of images: an array in, labels out."""

from deepcluster.clusters.agreement import (
    Contingency,
    cluster_purity,
    normalized_mutual_information,
)
from deepcluster.clusters.alike import joined
from deepcluster.clusters.by_group import own_and_other
from deepcluster.clusters.clusters import Clustering, Clusters
from deepcluster.clusters.graph import nearest_others
from deepcluster.clusters.kmeans import KMeans, assign
from deepcluster.clusters.neighbours import Neighbours, nearest
from deepcluster.clusters.power_iteration import PowerIteration
from deepcluster.clusters.suggestion import Stability, Suggestion, suggest_k

__all__ = [
    "Clustering",
    "Clusters",
    "Contingency",
    "KMeans",
    "Neighbours",
    "PowerIteration",
    "Stability",
    "Suggestion",
    "assign",
    "cluster_purity",
    "joined",
    "nearest",
    "nearest_others",
    "normalized_mutual_information",
    "own_and_other",
    "suggest_k",
]
