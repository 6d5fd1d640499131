"""The whitened features of a few images, for looking at a network rather than training it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from deepcluster.features.moments import Moments
from deepcluster.features.whiten import fitted
from deepcluster.images.crops import normalize
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import HealthWarning
from deepcluster.runtime.world import World


def whitened_rows(
    view: nn.Module,
    batches: Iterable[Tensor],
    dimensions: int,
    device: torch.device,
    advance: Callable[[int], None] = lambda count: None,
) -> Tensor:
    """Rows of unit length (n x d, on the CPU), whitened over these images alone.

    Args:
        view: From normalised images to rows; on the device.
        batches: Pixels, uint8.
        dimensions: How many to keep; fewer where the images do not bear them.
        device: That computes.
        advance: Told how many images more are done.
    """
    was_training = view.training
    view.eval()
    blocks = []
    try:
        with torch.no_grad():
            for pixels in batches:
                blocks.append(view(normalize(pixels.to(device))).float())
                advance(len(pixels))
                interruption.raise_if_asked()
    finally:
        view.train(was_training)
    rows = torch.nan_to_num(torch.cat(blocks))
    if len(rows) < rows.shape[1]:  # fewer rows span fewer dimensions: the same points, sooner
        centred = rows - rows.mean(dim=0)
        rows = centred @ torch.linalg.qr(centred.T).Q
    moments = Moments(rows.shape[1], rows.device)
    moments.add(rows)
    with warnings.catch_warnings():  # fewer images than a run has bear fewer dimensions
        warnings.simplefilter("ignore", HealthWarning)
        pca = fitted(moments, dimensions, World(device=device))
    return pca(rows).cpu()
