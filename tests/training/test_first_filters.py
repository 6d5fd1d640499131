"""Filters that begin as centroids of patches, beside numpy, scikit-learn and the convolution."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans as TheirKMeans
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

from deepcluster.clusters import Clusters
from deepcluster.features import PCA
from deepcluster.features.moments import Moments
from deepcluster.images.crops import normalize
from deepcluster.networks import Network, build_network
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator
from deepcluster.training import first_filters
from deepcluster.training.first_filters import Sight, begin_with_patches, begun_by_patches, looks


class Pictures:
    """Blurred noise, which has edges in every direction."""

    def __init__(self, count: int) -> None:
        noise = torch.randn(count, 1, 68, 68, generator=torch.Generator().manual_seed(0))
        smooth = F.avg_pool2d(noise, 5, stride=1)
        self.pixels = (128 + 250 * smooth).clamp(0, 255).to(torch.uint8)

    def __len__(self) -> int:
        return len(self.pixels)

    def seen(self, ids: Sequence[int], batch: int, workers: int) -> Iterator[Tensor]:
        yield from self.pixels[list(ids)].split(batch)


def a_network(arch: str = "alexnet") -> Network:
    return build_network(
        arch, "sobel", 64, dropout=0.0, width=8, generator=generator(3, "network")
    ).eval()


def sight(count: int) -> Sight:
    return Sight(Pictures(count), torch.device("cpu"), 1)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def begun() -> Network:
    network = a_network()
    begin_with_patches(network, 2, sight(25), seed=5)
    return network


@pytest.mark.parametrize(("side", "stride", "padding"), [(11, 4, 2), (5, 1, 2), (3, 1, 0)])
def test_a_patch_is_what_the_convolution_sees_there(side: int, stride: int, padding: int):
    """Patch times weights is the convolution's output at that place, whichever it is."""
    maps = torch.randn(3, 2, 23, 19)
    convolution = torch.nn.Conv2d(2, 4, side, stride=stride, padding=padding, bias=False)
    out = convolution(maps)
    high, wide = out.shape[2:]
    down, across = torch.tensor([0, high - 1, high // 2]), torch.tensor([wide - 1, 0, wide // 3])
    one = torch.cat([(down + 0.5) / high, (across + 0.5) / wide])
    patches = first_filters._patches(maps, convolution, one.double().repeat(3, 1))
    told = (patches @ convolution.weight.flatten(1).T).reshape(3, 3, 4)
    expected = out[:, :, down, across].permute(0, 2, 1)
    torch.testing.assert_close(told, expected, rtol=1e-4, atol=1e-5)


def test_the_first_filters_are_as_good_centroids_as_scikit_learns(
    monkeypatch: pytest.MonkeyPatch,
):
    """Every window of the images, whitened by numpy; how near are the nearest directions?"""
    monkeypatch.setattr(first_filters, "_OF_AN_IMAGE", 100)
    network = a_network()
    begin_with_patches(network, 1, sight(60), seed=5)
    convolution = begun_by_patches(network, 1)[0][1]
    maps = network.front(normalize(Pictures(60).pixels))
    windows = F.unfold(maps, 11, padding=2, stride=4).transpose(1, 2).flatten(0, 1)
    windows = windows.double().numpy()
    centred = windows - windows.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred / len(centred))
    values, vectors = values[-64:], vectors[:, -64:]
    rows = centred @ vectors / np.sqrt(values)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def nearness(directions: np.ndarray) -> float:
        directions = directions / np.linalg.norm(directions, axis=1, keepdims=True)
        return float((rows @ directions.T).max(axis=1).mean())

    # A filter is a direction of the whitened space, taken back: whitening once more undoes it.
    ours = convolution.weight.detach().flatten(1).double().numpy() @ vectors * np.sqrt(values)
    theirs = TheirKMeans(96, n_init=1, max_iter=20, random_state=0).fit(rows[::3]).cluster_centers_
    chance = np.random.default_rng(0).permutation(rows)[:96]
    gained = (nearness(ours) - nearness(chance)) / (nearness(theirs) - nearness(chance))
    assert nearness(theirs) > nearness(chance) + 0.02
    assert gained > 0.8


def test_weights_are_as_large_as_drawn_ones_times_the_hold(begun: Network):
    drawn = a_network()
    for (name, ours), (_, before) in zip(
        begun_by_patches(begun, 5), begun_by_patches(drawn, 5), strict=True
    ):
        if name in ("conv1", "conv2"):
            ratio = float(ours.weight.detach().std() / before.weight.detach().std())
            assert ratio == pytest.approx(first_filters._HOLD, rel=1e-3)
        else:
            assert torch.equal(ours.weight, before.weight)


def test_batch_norm_begins_with_the_averages_of_these_images(begun: Network):
    maps = begun.front(normalize(Pictures(25).pixels))
    with torch.no_grad():
        for name, part in begun.trunk.convnet.convolutions.named_children():
            if name.startswith("conv"):
                out = part[0](maps)
                mean, spread = out.mean((0, 2, 3)), out.std((0, 2, 3))
                assert (mean - part[1].running_mean).abs().max() < 0.02 * spread.mean()
                ratio = out.var((0, 2, 3)) / part[1].running_var
                assert (ratio - 1).abs().max() < 0.02
                assert part[1].momentum == 0.1
                assert not part[1].training
            maps = part(maps)


def test_every_image_counts_the_same_in_the_averages(monkeypatch: pytest.MonkeyPatch):
    """Of 26 images in batches of at most 25, the last one is no batch of its own."""
    monkeypatch.setattr(first_filters, "_BATCH", 25)
    network = a_network()
    begin_with_patches(network, 1, sight(26), seed=5)
    maps = network.front(normalize(Pictures(26).pixels))
    with torch.no_grad():
        out = begun_by_patches(network, 1)[0][1](maps)
    norm = network.trunk.convnet.convolutions[0][1]
    torch.testing.assert_close(norm.running_mean, out.mean((0, 2, 3)), rtol=1e-3, atol=1e-3)
    assert (out.var((0, 2, 3)) / norm.running_var - 1).abs().max() < 0.02


def test_on_a_gpu_all_is_on_the_gpu(monkeypatch: pytest.MonkeyPatch):
    """Tensors that say that they are there; the clusters' are on the CPU, as k-means gives them."""

    def found(rows: Tensor, world: object, randomness: torch.Generator) -> Clusters:
        each, sizes = torch.empty(len(rows)), torch.empty(96)
        centroids = torch.empty(96, rows.shape[1])
        return Clusters(each, 96, sizes, [], 0, centroids, distances=each, margins=each)

    def pca(moments: Moments, *_: object, **__: object) -> PCA:
        return PCA(moments.mean.float(), moments.scatter.float()[:, :64])

    monkeypatch.setattr(first_filters, "KMeans", lambda k: found)
    monkeypatch.setattr(first_filters, "fitted", pca)
    with FakeTensorMode(), torch.no_grad():
        patches = torch.empty(200, 242, device="cuda")
        convolution = torch.nn.Conv2d(2, 96, 11, device="cuda")
        first_filters._become_centroids(convolution, patches, torch.Generator())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_begins_on_a_gpu_as_on_a_cpu():
    here, there = a_network(), a_network().to("cuda", memory_format=torch.channels_last)
    begin_with_patches(here, 2, sight(25), seed=5)
    begin_with_patches(there, 2, replace(sight(25), device=torch.device("cuda")), seed=5)
    (_, first), _ = begun_by_patches(here, 2)
    (_, same), _ = begun_by_patches(there, 2)
    alike = F.cosine_similarity(first.weight.flatten(1), same.weight.cpu().flatten(1))
    assert alike.median() > 0.99  # rounding may turn a patch to another group
    for ours, theirs in zip(here.state_dict().values(), there.state_dict().values(), strict=True):
        assert theirs.isfinite().all()
        assert theirs.shape == ours.shape


def test_the_start_is_a_function_of_seed_and_images():
    first, again, other = a_network(), a_network(), a_network()
    for network, seed in ((first, 1), (again, 1), (other, 2)):
        begin_with_patches(network, 1, sight(20), seed)
    one, same, another = (begun_by_patches(n, 1)[0][1].weight for n in (first, again, other))
    assert torch.equal(one, same)
    assert not torch.allclose(one, another)


def test_filters_for_which_there_are_no_patches_stay_as_they_were_drawn():
    network, drawn = a_network(), a_network()
    begin_with_patches(network, 2, sight(1), seed=0)
    ours, before = (begun_by_patches(n, 2)[1][1].weight for n in (network, drawn))
    kept = [i for i in range(256) if torch.allclose(ours[i], first_filters._HOLD * before[i])]
    assert kept == list(range(256 - len(kept), 256))
    assert len(kept) >= 236  # an image has 20 patches
    assert ours.isfinite().all()


def test_images_are_looked_at_as_often_as_was_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(first_filters, "_IMAGES", 7)
    seen: list[int] = []
    told = Sight(Pictures(20), torch.device("cpu"), 1, seen.append)  # type: ignore[arg-type]
    begin_with_patches(a_network(), 2, told, seed=0)
    assert sum(seen) == looks(20, 2) == 21
    assert told.ids.tolist() == [0, 2, 5, 8, 11, 14, 17]


@pytest.mark.parametrize(
    ("arch", "count", "sentence"),
    [
        ("alexnet", 6, "there are 5 convolutions"),
        ("vgg16", 14, "there are 13 convolutions"),
        ("resnet18", 1, "only alexnet and vgg16 begin so"),
    ],
)
def test_convolutions_that_are_not_there_are_refused(arch: str, count: int, sentence: str):
    with pytest.raises(UsageError, match=sentence):
        begun_by_patches(a_network(arch), count)


def test_vgg_begins_so_too():
    network, drawn = a_network("vgg16"), a_network("vgg16")
    begin_with_patches(network, 3, sight(12), seed=0)
    changed = [
        name
        for (name, ours), (_, before) in zip(
            begun_by_patches(network, 13), begun_by_patches(drawn, 13), strict=True
        )
        if not torch.equal(ours.weight, before.weight)
    ]
    assert changed == ["conv1", "conv2", "conv3"]
