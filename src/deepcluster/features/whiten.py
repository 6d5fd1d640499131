"""Features with unit covariance, each row scaled to unit length (paper, implementation details)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from deepcluster.features.extract import RawFeatures
from deepcluster.features.moments import Moments
from deepcluster.runtime import faults
from deepcluster.runtime.errors import DimensionsShrunk, NumericsError, RowsExcluded
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World

# Rounding to float16 (an error of up to 2^-11 of each number) gives every direction up to this
# share of the largest variance, and no direction that carries as little is counted as real.
_ROUNDING = 2.0**-22 / 3

# More rows than this share that are not finite are no accident of a few images.
_MOST_EXCLUDED = 0.01


@dataclass(frozen=True)
class PCA:
    """The linear map to whitened features: (x - mean) @ projection, then unit length."""

    mean: Tensor  # d_in, float32
    projection: Tensor  # d_in x d_out, float32: eigenvectors over the root of their eigenvalue

    def whitened(self, rows: Tensor) -> Tensor:
        """Rows whose covariance, over the images of the fit, is the identity (n x d_out)."""
        return (rows - self.mean) @ self.projection

    def __call__(self, rows: Tensor) -> Tensor:
        """Whitened rows of unit length (n x d_out); a row at the very mean stays zero."""
        whitened = self.whitened(rows)
        return whitened / whitened.norm(dim=1, keepdim=True).clamp_min(1e-12)


@dataclass(frozen=True)
class Features:
    """What is clustered: this process's finite rows, whitened, in the order of the images."""

    matrix: Tensor  # n_finite_local x d, float32
    finite: Tensor  # N, bool, CPU: which of all images have a row
    pca: PCA


@dataclass(frozen=True)
class Whitening:
    """PCA reduction before clustering."""

    dimensions: int = 256
    """Dimensions kept; fewer where the features or the number of images do not fill them."""

    kind: Literal["pca", "none"] = "pca"
    """pca: reduced and whitened (the paper). none: as the network gives them, of unit length."""

    def __call__(self, raw: RawFeatures, world: World) -> Features:
        """The whitened features, finite always."""
        faults.point("whiten")
        total = sum(world.counts(len(raw.finite)))
        excluded = total - raw.moments.count
        if excluded > _MOST_EXCLUDED * total:
            raise NumericsError(
                f"{excluded:,} of {total:,} images gave features that are not finite: training has "
                "diverged; start again with --fresh and a smaller --training.step"
            )
        if excluded:
            warnings.warn(
                RowsExcluded(f"{excluded} images gave features that are not finite; left out"),
                stacklevel=2,
            )
        pca = (
            fitted(raw.moments, self.dimensions, world) if self.kind == "pca" else _as_they_are(raw)
        )
        matrix = torch.cat(
            [pca(block[block.isfinite().all(dim=1)]) for block in raw.rows.blocks()]
            or [torch.empty(0, pca.projection.shape[1], device=world.device)]
        )
        finite = world.gather(raw.finite.to(torch.uint8)).bool()
        return Features(matrix, finite, _unframed(pca, raw))


def fitted(moments: Moments, dimensions: int, world: World, of: str = "images") -> PCA:
    """The whitening map of rows with these moments, with as many dimensions as they can bear.

    Args:
        moments: Of the rows of all processes.
        dimensions: At most so many.
        world: The processes.
        of: What a row is of, for what is said where they are too few.
    """
    covariance = moments.covariance
    variance = float(covariance.diagonal().mean())
    if not math.isfinite(variance):
        raise NumericsError(
            "the features have overflowed: training has diverged; start again with --fresh and a "
            "smaller --training.step"
        )
    if not variance > 0:
        raise NumericsError(
            "the features carry no information: every image gives the same vector; check that the "
            "images differ (deepcluster train lists them in index.parquet), or start again with "
            "--fresh and a smaller --training.step"
        )
    values, vectors = _eigen(covariance / variance, moments.count)
    # Few rows in many dimensions crowd their noise into few directions (Marchenko and Pastur).
    crowding = (1 + (len(covariance) / moments.count) ** 0.5) ** 2
    noise = 4 * _ROUNDING * crowding * float(covariance.diagonal().max()) / variance
    rank = int((values > noise).sum())
    # Near N dimensions, whitening puts all rows at equal distance and the clusters are noise.
    bearable = max(8, moments.count // 20)
    # Machines may differ in the last digit, and the processes must not.
    kept = int(world.broadcast(torch.tensor([max(1, min(dimensions, rank, bearable))])))
    if kept < dimensions:
        why = (
            f"the features have only {rank} independent directions"
            if rank <= bearable
            else f"{moments.count:,} {of} bear one for every 20, at least 8"
        )
        warnings.warn(
            DimensionsShrunk(f"{kept} dimensions instead of {dimensions}: {why}"), stacklevel=3
        )
    # An eigenvector's sign is arbitrary; its largest component is made positive.
    chosen = vectors[:, :kept]
    chosen = chosen * chosen.gather(0, chosen.abs().argmax(dim=0, keepdim=True)).sign()
    projection = (chosen / (values[:kept] * variance).sqrt()).float()
    return PCA(world.broadcast(moments.mean.float()), world.broadcast(projection))


def _eigen(covariance: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues and eigenvectors, the largest first; without some that are zero.

    Those of few rows (`count`) in many dimensions lie in the span of as many random combinations
    of the covariance's columns (Halko, Martinsson and Tropp, 2011, section 5.3): rounding aside,
    the same vectors in a fraction of the time.
    """
    width = len(covariance)
    if 4 * count > width:
        values, vectors = torch.linalg.eigh(covariance)
        return values.flip(0), vectors.flip(1)
    randomness = generator(0, "whitening")  # on the CPU: the same in every process
    drawn = torch.randn(width, count, dtype=covariance.dtype, generator=randomness)
    span = torch.linalg.qr(covariance @ drawn.to(covariance.device)).Q
    values, vectors = torch.linalg.eigh(span.T @ covariance @ span)
    return values.flip(0), span @ vectors.flip(1)


def _as_they_are(raw: RawFeatures) -> PCA:
    """The map from the frame that rows are kept in back to what the network gave."""
    width = len(raw.moments.mean)
    scale = raw.rows.scale.float()
    mean = (-raw.rows.centre / scale).expand(width).contiguous()
    return PCA(mean, torch.eye(width, device=mean.device) * scale)


def _unframed(pca: PCA, raw: RawFeatures) -> PCA:
    """The same map for rows as the network gives them, not in the frame they were kept in."""
    centre, scale = raw.rows.centre, raw.rows.scale
    return PCA(centre + pca.mean * scale, pca.projection / scale)
