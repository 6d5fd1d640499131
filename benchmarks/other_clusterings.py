"""What others offer to cluster rows and to find neighbours, for benchmarks to stand beside.

Each gives the centroids after 20 iterations from the same start, if nothing else is said.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor


def chunked(rows: Tensor, centroids: Tensor, chunk: int) -> Tensor:
    """One iteration of plain torch: the new centroids."""
    k = len(centroids)
    half_norms = centroids.square().sum(dim=1) / 2
    sums = torch.zeros_like(centroids)
    counts = torch.zeros(k, device=rows.device)
    for first in range(0, len(rows), chunk):
        part = rows[first : first + chunk]
        labels = torch.addmm(half_norms, part, centroids.T, alpha=-1).argmin(dim=1)
        sums.index_add_(0, labels, part)
        counts += torch.bincount(labels, minlength=k)
    return torch.where(counts[:, None] > 0, sums / counts[:, None].clamp_min(1), centroids)


def by_flash_kmeans(rows: Tensor, start: Tensor) -> Callable[[int], Tensor]:
    """On a GPU, after as many iterations as are asked for."""
    from flash_kmeans import batch_kmeans_Euclid

    rounded, first = rows.bfloat16()[None], start.bfloat16()[None]

    def run(iterations: int) -> Tensor:
        found: Tensor = batch_kmeans_Euclid(
            rounded, len(start), max_iters=iterations, tol=-1.0, init_centroids=first
        )[1]
        return found[0]

    return run


def scikit_learn(rows: Tensor, start: Tensor) -> Tensor:
    from sklearn.cluster import KMeans as Reference
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = Reference(len(start), init=start.numpy(), n_init=1, max_iter=20, tol=0).fit(
            rows.numpy()
        )
    return torch.from_numpy(fitted.cluster_centers_).float()


def plain_torch(rows: Tensor, start: Tensor) -> Tensor:
    for _ in range(20):
        start = chunked(rows, start, 8192)
    return start


def faiss_cpu(rows: Tensor, start: Tensor) -> Tensor:
    import faiss

    k, width = start.shape
    method = faiss.Clustering(width, k)
    method.niter, method.max_points_per_centroid = 20, len(rows)
    faiss.copy_array_to_vector(start.numpy().ravel(), method.centroids)
    method.train(rows.numpy(), faiss.IndexFlatL2(width))
    return torch.from_numpy(faiss.vector_to_array(method.centroids).reshape(k, width))


def faiss_graph(rows: Tensor, _: Tensor) -> Tensor:
    """The five nearest of each row."""
    import faiss

    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(rows.numpy())
    return torch.from_numpy(index.search(rows.numpy(), 6)[1][:, 1:])


ON_CPU = (scikit_learn, plain_torch, faiss_cpu, faiss_graph)
