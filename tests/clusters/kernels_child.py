"""The kernels against the plain version, on the device that is named. Run by test_fast.py."""

import sys

import pytest
import torch

from deepcluster.clusters import KMeans
from deepcluster.clusters.fast import search_by_kernel
from deepcluster.clusters.fast.nearest_kernel import Tile, nearest_rounded, two_nearest
from deepcluster.clusters.fast.search_by_kernel import SearchByKernel
from deepcluster.clusters.fast.sums_kernel import sums_by_kernel
from deepcluster.clusters.rows import Rows
from deepcluster.clusters.search import ExactSearch
from deepcluster.runtime.world import World

device = torch.device(sys.argv[1])
real = device.type == "cuda"
source = torch.Generator().manual_seed(0)
tiles = {} if real else {"tile": Tile(32, 32, 4, 1)}


def normal(*shape):
    return torch.randn(shape, generator=source)


def unit(rows):
    return torch.nn.functional.normalize(rows, dim=1)


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
    near = normal(1, 16) + 1e-4 * normal(50, 16)
    yield "near duplicates", near.repeat(2, 1), near


def check_nearest(name, rows, centroids):
    squared = torch.cdist(rows.double(), centroids.double()).square()
    lowest = squared.sort(dim=1).values
    k = len(centroids)
    # Two nearest: in float32 as exact as float32 is; the scores are the distances' own.
    index, scores = two_nearest(rows, centroids, **tiles)
    found = squared.gather(1, index[:, : min(2, k)].long())
    size = rows.double().square().sum(dim=1, keepdim=True)
    assert (found - lowest[:, : min(2, k)] <= 1e-5 * size).all(), name
    told = 2 * scores[:, : min(3, k)].double() + size
    assert torch.allclose(told, lowest[:, : min(3, k)], atol=float(1e-5 * size.max())), name
    if k > 1:
        assert (index[:, 0] != index[:, 1]).all(), name
    # Rounded: here by products of float32, so only the bits that number the tiles are missing.
    least = 2**-14 * (size + lowest[:, :1])
    alone = nearest_rounded(rows, centroids, **tiles).long()
    assert (squared.gather(1, alone) - lowest[:, :1] <= least).all(), name
    if k > 3:
        four = nearest_rounded(rows, centroids, count=4, **tiles).long()
        assert (four.sort(dim=1).values.diff(dim=1) > 0).all(), name  # no two the same
        assert (squared.gather(1, four[:, 1:2]) - lowest[:, 1:2] <= least).all(), name


def check_sums(name, rows, labels, k):
    mean = rows.mean(dim=0)
    sums, squares, sizes = sums_by_kernel(rows, labels, k, mean)
    about = rows.double() - mean
    plain = torch.zeros(k, rows.shape[1], dtype=torch.float64, device=device)
    plain.index_add_(0, labels, about)
    plain_squares = plain.new_zeros(k).index_add_(0, labels, about.square().sum(dim=1))
    assert torch.allclose(sums, plain, atol=1e-4), name
    assert torch.allclose(squares, plain_squares, rtol=1e-5), name
    assert torch.equal(sizes, torch.bincount(labels, minlength=k)), name
    again = sums_by_kernel(rows, labels, k, mean)
    assert torch.equal(sums, again[0]), name
    assert torch.equal(squares, again[1]), name


for name, rows, centroids in cases():
    rows, centroids = rows.to(device), centroids.to(device)
    check_nearest(name, rows, centroids)
    labels = torch.cdist(rows, centroids).argmin(dim=1)
    check_sums(name, rows, labels, len(centroids))

# Equal centroids: the lower number wins, within a tile and across tiles. Whole numbers, so that
# equal products are equal bits wherever in a tile a library's multiplication puts them.
rows = torch.randint(-8, 9, (20, 16), generator=source).float().to(device)
same = torch.randint(-8, 9, (1, 16), generator=source).float().repeat(100, 1).to(device)
assert (two_nearest(rows, same, **tiles)[0] == torch.tensor([0, 1]).to(device)).all()

# A large cluster is summed in pieces, and one may have no rows.
labels = torch.zeros(1300, dtype=torch.int64, device=device)
labels[:3] = 2
check_sums("pieces", normal(1300, 16).to(device), labels, 4)

if not real:
    # More tiles than the spare bits can number. (On a GPU the sizes below are larger still.)
    from deepcluster.clusters.fast import nearest_kernel

    nearest_kernel._TILES = 2
    check_nearest_rows, many = normal(40, 8), normal(300, 8)
    found = nearest_rounded(check_nearest_rows, many, **tiles)[:, 0].long()
    squared = torch.cdist(check_nearest_rows, many).square()
    assert (squared.gather(1, found[:, None])[:, 0] - squared.amin(dim=1) < 1e-3).all()
    nearest_kernel._TILES = 256
    torch.cuda.synchronize = lambda device: None
    # The interpreter multiplies no bfloat16: rounded rows, then, by products of float32.
    search_by_kernel.nearest_rounded = lambda rows, centroids, **how: nearest_rounded(
        rows.float(), centroids.float(), **how, **tiles
    )


def check_tight(count, d, k):
    """Groups so tight that the difference between their centroids is lost in rounding."""
    place = torch.randint(8, (max(count, k),), generator=source)
    middle = unit(normal(8, d))[place]
    rows = unit(middle + 0.02 * normal(len(place), d) / d**0.5).to(device)
    centroids = unit(middle + 0.02 * normal(len(place), d) / d**0.5)[:k].to(device)
    rows = rows[:count]
    best = torch.cdist(rows.double(), centroids.double()).sort(dim=1).values[:, :2]
    for precision in ("bfloat16", "tf32"):
        found = SearchByKernel(Rows.of(rows), World(device=device), precision)
        told = found.two_nearest(centroids).distance.sqrt()
        assert torch.allclose(told, best, rtol=1e-3), precision


def check_extreme():
    """Rows whose squares vanish or overflow in float32 are none for kernels; far centroids are."""
    source.manual_seed(1)
    rows = normal(40, 8).to(device)
    world = World(device=device)
    for precision in ("bfloat16", "tf32", "float32"):
        for far, factor in ((1, 1e-24), (1, 1e20), (1e20, 1)):
            extreme = factor * rows
            extreme[0] *= far
            with pytest.raises(ValueError, match="squares are of float32"):
                SearchByKernel(Rows.of(extreme), world, precision)
        centroids = 1e25 * normal(12, 8).to(device)
        best = torch.cdist(rows.double(), centroids.double()).sort(dim=1).values[:, :2]
        told = SearchByKernel(Rows.of(rows), world, precision).two_nearest(centroids)
        assert torch.allclose(told.distance.sqrt(), best, rtol=1e-3, atol=0), precision


check_extreme()
if not real:
    check_tight(60, 16, 40)
    sys.stdout.write("equal\n")
    raise SystemExit
check_tight(20_000, 256, 900)

# In bfloat16 and TF32, for rows of unit length: within a thousandth of the nearest.
world = World(device=device)
for k in (600, 20_000):
    rows = unit(normal(25_000, 256)).to(device)
    centroids = unit(rows[:k] + 0.03 * normal(k, 256).to(device))
    distance = torch.cat(
        [torch.cdist(part, centroids.double()) for part in rows.double().split(2000)]
    )
    best = distance.amin(dim=1)
    exact = ExactSearch(Rows.of(rows), world).totals(centroids)
    for precision in ("bfloat16", "tf32", "float32"):
        search = SearchByKernel(Rows.of(rows), world, precision)
        totals = search.totals(centroids)
        chosen = distance.gather(1, search._labels[:, None].long())[:, 0]
        assert ((chosen - best) / best).max() < 1e-3, (k, precision)
        assert abs(float(totals.spread.sum() / exact.spread.sum()) - 1) < 1e-4, (k, precision)
        same = (search._labels == distance.argmin(dim=1)).float().mean()
        assert same > 0.95, (k, precision, same)
        two = search.two_nearest(centroids)
        expected = distance.topk(2, largest=False).values
        assert torch.allclose(two.distance.sqrt(), expected, rtol=1e-3), (k, precision)
        if precision == "float32":
            assert torch.equal(two.index[:, 0], distance.argmin(dim=1)), k
            assert torch.equal(totals.sizes, exact.sizes), k

# Rows that stay in the memory of the host pass through the GPU, with the same result.
rows = unit(normal(200_000, 256))
for precision in ("bfloat16", "float32"):
    here = KMeans(k=50, iterations=5, precision=precision)(rows.to(device))
    there = KMeans(k=50, iterations=5, precision=precision)(rows.half().float().numpy(), world)
    assert there.search == here.search == f"{precision} kernels on cuda"
    assert abs(here.objective[-1] / there.objective[-1] - 1) < 1e-3
sys.stdout.write("equal\n")
