"""The face that scikit-learn's users know: fit, predict, transform, and what they leave.

Arrays and tensors alike: what goes in as a tensor comes out as one, on its device.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from deepcluster.clusters.clusters import Clusters
from deepcluster.clusters.neighbours import nearest
from deepcluster.clusters.rows import Rows, directions
from deepcluster.runtime.errors import DeepClusterError


class CentroidEstimator(TransformerMixin, ClusterMixin, BaseEstimator):
    """A clustering by centroids, which is called with rows, in scikit-learn's manner.

    Settings are the constructor's; only `fit` writes `labels_`, `cluster_centers_`, `inertia_`,
    `n_iter_`, `n_repaired_` and `n_features_in_`.
    """

    def fit(self, X: Any, y: object = None) -> Self:  # noqa: N803 - scikit-learn's name
        """Group the rows; `y` is there for scikit-learn's sake and not looked at."""
        rows = self._taken(X, reset=True)
        try:
            clusters: Clusters = self(rows)
        except DeepClusterError as error:
            raise ValueError(str(error)) from error
        centroids = clusters.centroids.to(rows.device)
        self.labels_ = _as_given(clusters.labels.to(rows.device).int(), X)
        self.cluster_centers_ = _as_given(centroids, X)
        self.inertia_ = clusters.objective[-1] * len(rows)
        self.n_iter_ = len(clusters.objective) - 1
        self.n_repaired_ = clusters.repaired
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The number of the nearest centroid of each row."""
        return self.predict_with_margin(X)[0]

    def predict_with_margin(self, X: Any) -> tuple[Any, Any, Any]:  # noqa: N803
        """The nearest centroid of each row, its distance, and how much farther the next one is."""
        rows = self._direction(self._taken(X, reset=False))
        centroids = self._centroids(rows)
        found = nearest(rows, centroids, min(2, len(centroids)))
        own = found.distance[:, 0].sqrt()
        other = found.distance[:, -1].sqrt() if len(centroids) > 1 else own + torch.inf
        labels = found.index[:, 0].int()
        return tuple(_as_given(part, X) for part in (labels, own.float(), (other - own).float()))

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The distance of each row to each centroid."""
        rows = self._direction(self._taken(X, reset=False))
        centroids = self._centroids(rows)
        exact = centroids.double()
        # By differences, not by products: a small distance between large numbers keeps its digits.
        parts = [
            torch.cdist(part.double(), exact, compute_mode="donot_use_mm_for_euclid_dist").float()
            for part in rows.split(4096)
        ]
        return _as_given(torch.cat(parts), X)

    def _direction(self, rows: Tensor) -> Tensor:
        """The rows as the metric has them."""
        spherical = getattr(self, "metric", "euclidean") == "spherical"
        return directions(rows.float()) if spherical else rows.float()

    def _centroids(self, rows: Tensor) -> Tensor:
        check_is_fitted(self)
        return torch.as_tensor(self.cluster_centers_, dtype=torch.float32, device=rows.device)

    def _taken(self, X: Any, *, reset: bool) -> Tensor:  # noqa: N803
        """The rows, where they are, after scikit-learn's own checks of them."""
        if not reset:
            check_is_fitted(self)
        least = 2 if reset else 1
        if isinstance(X, Tensor):
            array = X.detach().cpu().float().numpy()
            validate_data(self, array, reset=reset, ensure_min_samples=least)
            return X.detach()
        array = validate_data(
            self, X, reset=reset, dtype=[np.float64, np.float32], ensure_min_samples=least
        )
        return Rows.of(np.asarray(array)).source

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


def _as_given(result: Tensor, like: Any) -> Any:
    """The result as what was given: a tensor, or an array in the precision of the rows."""
    if isinstance(like, Tensor):
        return result
    array = result.cpu().numpy()
    double = getattr(like, "dtype", None) != np.float32
    return array.astype(np.float64) if array.dtype == np.float32 and double else array
