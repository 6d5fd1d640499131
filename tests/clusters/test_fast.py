"""The kernels against the plain version: under the interpreter, and on a GPU if there is one."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import pytest
import torch

from deepcluster.clusters import KMeans
from deepcluster.runtime.errors import PlainSearch

triton = pytest.importorskip("triton", reason="Triton is not installed")

CHECK = """
import torch
from deepcluster.clusters.fast.nearest_kernel import Tile, nearest_by_kernel
from deepcluster.clusters.fast.sums_kernel import sums_by_kernel
from deepcluster.clusters.fast.totals_by_kernel import TotalsByKernel
from deepcluster.clusters.totals import Totals
from deepcluster.runtime.world import World

device = torch.device({device!r})
source = torch.Generator().manual_seed(0)
tile = Tile(32, 32, 4, 1) if device.type == "cpu" else None

def normal(*shape):
    return torch.randn(shape, generator=source)

def cases():
    yield "random", normal(150, 40), normal(70, 40)
    yield "few columns", normal(65, 3), normal(130, 3)
    yield "more centroids than rows", normal(9, 16), normal(90, 16)
    centres = 5 * normal(12, 24)
    yield "clustered", centres[torch.arange(100) % 12] + 0.1 * normal(100, 24), centres
    yield "duplicated rows", normal(5, 20).repeat(20, 1), normal(33, 20)
    yield "one centroid", normal(40, 20), normal(1, 20)
    rows = normal(64, 32)
    yield "rows on centroids", rows, rows[::2].clone()

for name, rows, centroids in cases():
    rows, centroids = rows.to(device), centroids.to(device)
    distance = torch.cdist(rows.double(), centroids.double())
    two = len(centroids) > 1
    got = nearest_by_kernel(rows, centroids, second=two, tile=tile).long()
    expected = distance.topk(1 + two, largest=False).values
    assert torch.allclose(distance.gather(1, got), expected, atol=1e-5), name
    if two:
        assert (got[:, 0] != got[:, 1]).all(), name
    alone = nearest_by_kernel(rows, centroids, tile=tile)[:, 0].long()
    assert torch.equal(alone, got[:, 0]), name

    sums, sizes = sums_by_kernel(rows, alone, len(centroids))
    plain = torch.zeros(len(centroids), rows.shape[1], dtype=torch.float64, device=device)
    plain.index_add_(0, alone, rows.double())
    assert torch.allclose(sums, plain, atol=1e-4), name
    assert torch.equal(sizes, torch.bincount(alone, minlength=len(centroids))), name
    again, _ = sums_by_kernel(rows, alone, len(centroids))
    assert torch.equal(sums, again), name

# Equal centroids: the lower number wins, within a tile and across tiles.
same = normal(1, 16).repeat(100, 1).to(device)
assert (nearest_by_kernel(normal(20, 16).to(device), same, tile=tile) == 0).all()

# A large cluster is summed in pieces.
rows = normal(1300, 16).to(device)
labels = torch.zeros(1300, dtype=torch.int64, device=device)
labels[:3] = 2
sums, sizes = sums_by_kernel(rows, labels, 4)
assert sizes.tolist() == [1297, 0, 3, 0]
assert torch.allclose(sums[0], rows[3:].double().sum(dim=0), atol=1e-3)
assert (sums[1] == 0).all()
if device.type == "cpu":
    print("equal")
    raise SystemExit

# In bfloat16, for rows of unit length: within a thousandth of the nearest.
rows = torch.nn.functional.normalize(normal(5000, 256), dim=1).to(device)
centroids = torch.nn.functional.normalize(rows[:600] + 0.03 * normal(600, 256).to(device), dim=1)
distance = torch.cdist(rows.double(), centroids.double())
got = nearest_by_kernel(rows.bfloat16(), centroids.bfloat16())[:, 0].long()
chosen, best = distance.gather(1, got[:, None])[:, 0], distance.min(dim=1).values
assert ((chosen - best) / best).max() < 1e-3
exact, fast = Totals.at(rows, centroids, World(device=device)), None
fast = TotalsByKernel(rows, World(device=device)).at(centroids)
assert abs(float(fast.spread.sum() / exact.spread.sum()) - 1) < 1e-4
assert (fast.sizes != exact.sizes).float().mean() < 0.1
print("equal")
"""


def agrees(device: str, **environment: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", CHECK.format(device=device)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert result.stdout.strip() == "equal", result.stderr


@pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8),
    reason="the interpreter of Triton before 3.8 cannot loop to a bound that it has loaded",
)
def test_the_kernels_agree_with_the_plain_version_under_the_interpreter():
    agrees("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernels_agree_with_the_plain_version_on_a_gpu():
    agrees("cuda")


def test_without_a_gpu_the_fast_search_is_the_exact_one():
    rows = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    exact, fast = KMeans(k=5)(rows), KMeans(k=5, precision="bfloat16")(rows)
    assert torch.equal(exact.labels, fast.labels)
    assert exact.objective == fast.objective


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fast_k_means_reaches_the_exact_objective_and_labels_the_nearest():
    source = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(20_000, 64, generator=source), dim=1).cuda()
    exact, fast = KMeans(k=100)(rows), KMeans(k=100, precision="bfloat16")(rows)
    assert fast.objective[-1] == pytest.approx(exact.objective[-1], rel=5e-3)
    assert int(fast.sizes.min()) > 0
    distance = torch.cdist(rows.double().cpu(), fast.centroids.double())
    assert torch.equal(distance.argmin(dim=1), fast.labels)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_rows_too_wide_for_the_kernel_are_searched_exactly_and_that_is_said():
    rows = torch.randn(300, 400).cuda()
    with pytest.warns(PlainSearch, match="400 columns"):
        KMeans(k=5, precision="bfloat16")(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlainSearch)
        KMeans(k=5)(rows)
