"""The face that scikit-learn's users know: fit, predict, transform, and what they leave.

Arrays and tensors alike: what goes in as a tensor comes out as one, on its device.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from deepcluster.clusters.clusters import Clusters
from deepcluster.clusters.neighbours import nearest
from deepcluster.clusters.rows import Rows, directions
from deepcluster.runtime.errors import DeepClusterError

_NAMED = 5  # of the rows that are not finite


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
        # Centroids of float64 are those of rows too far from zero for float32.
        self._origin = centroids.mean(dim=0).cpu() if centroids.dtype == torch.float64 else None
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
        rows, centroids = self._comparable(self._taken(X, reset=False))
        found = nearest(rows, centroids, min(2, len(centroids)))
        own = found.distance[:, 0].sqrt()
        other = found.distance[:, -1].sqrt() if len(centroids) > 1 else own + torch.inf
        labels = found.index[:, 0].int()
        return tuple(_as_given(part, X) for part in (labels, own.float(), (other - own).float()))

    def transform(self, X: Any) -> Any:  # noqa: N803
        """The distance of each row to each centroid."""
        rows, centroids = self._comparable(self._taken(X, reset=False))
        exact = centroids.double()
        # By differences, not by products: a small distance between large numbers keeps its digits.
        parts = [
            torch.cdist(part.double(), exact, compute_mode="donot_use_mm_for_euclid_dist").float()
            for part in rows.split(4096)
        ]
        return _as_given(torch.cat(parts), X)

    def _comparable(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The rows as the metric has them, and the centroids, both float32."""
        centroids = torch.as_tensor(self.cluster_centers_, device=rows.device)
        origin: Tensor | None = getattr(self, "_origin", None)  # none where centres were put there
        if origin is not None:
            origin = origin.to(rows.device)
            rows, centroids = rows.double() - origin, centroids.double() - origin
        rows = rows.float()
        if not bool(rows.isfinite().all()):
            raise ValueError("Input X contains infinity or a value too large for dtype('float32').")
        spherical = getattr(self, "metric", "euclidean") == "spherical"
        return directions(rows) if spherical else rows, centroids.float()

    def _taken(self, X: Any, *, reset: bool) -> Tensor:  # noqa: N803
        """The rows, where they are, after scikit-learn's own checks of them."""
        if not reset:
            check_is_fitted(self)
        least = 2 if reset else 1
        given = _as_array(X.detach()) if isinstance(X, Tensor) else X
        kinds = "numeric" if isinstance(X, Tensor) else [np.float64, np.float32]
        try:
            array = validate_data(self, given, reset=reset, dtype=kinds, ensure_min_samples=least)
        except ValueError as error:
            raise ValueError(f"{error}{_named_rows(given)}") from error
        if isinstance(X, Tensor):
            return X.detach().float() if X.dtype == torch.bool else X.detach()
        return Rows.of(np.asarray(array)).source

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


def _as_array(rows: Tensor) -> NDArray[Any]:
    """For scikit-learn to look at."""
    if rows.layout != torch.strided:
        raise TypeError(
            "Sparse data was passed for X, but dense data is required. Use '.to_dense()'."
        )
    return (rows.float() if rows.dtype == torch.bfloat16 else rows).cpu().numpy()


def _named_rows(given: Any) -> str:
    """Which rows are not finite, where that is what is wrong."""
    array = np.asarray(given)
    if array.ndim != 2 or array.dtype.kind != "f":
        return ""
    broken = np.flatnonzero(~np.isfinite(array).all(axis=1)).tolist()
    more = ", ..." if len(broken) > _NAMED else ""
    return f"\nNot finite: row {', '.join(map(str, broken[:_NAMED]))}{more}." if broken else ""


def _as_given(result: Tensor, like: Any) -> Any:
    """The result as what was given: a tensor, or an array in the precision of the rows."""
    if isinstance(like, Tensor):
        return result
    array = result.cpu().numpy()
    double = getattr(like, "dtype", None) != np.float32
    return array.astype(np.float64) if array.dtype == np.float32 and double else array
