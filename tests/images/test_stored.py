from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from deepcluster.images import on_device
from deepcluster.images.crops import PAPER, SHIFTED, TEN, CropRange
from deepcluster.images.kept import Pixels
from deepcluster.images.loader import Images
from deepcluster.images.on_device import DeviceImages, fits_pinned
from deepcluster.images.packing import pack
from deepcluster.images.source import Folder
from deepcluster.images.stored import StoredImages

COUNT = 23
IMAGE_OF_DRAW = np.random.default_rng(1).integers(0, COUNT, 60)
BATCHES = [np.arange(0, 25), np.arange(25, 50), np.arange(50, 60), np.arange(0)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("images")
    randomness = np.random.default_rng(0)
    for number in range(COUNT):
        rough = Image.fromarray(randomness.integers(0, 256, (7, 9, 3)).astype(np.uint8))
        width, height = (int(side) for side in randomness.integers(30, 120, 2))
        rough.resize((width, height), Image.Resampling.BICUBIC).save(path / f"{number:02d}.png")
    return path


@pytest.fixture(scope="module", params=["grey", "rgb"])
def store(folder, tmp_path_factory, request):
    target = tmp_path_factory.mktemp("store") / request.param
    return pack(Folder(folder), target, request.param, Pixels(), workers=1)


def test_a_colour_store_that_shrinks_nothing_gives_the_plain_paths_crops(folder, tmp_path):
    store = pack(Folder(folder), tmp_path / "store", "rgb", Pixels(short_side=500), workers=1)
    plain, stored = Images(folder, store.index, 64), StoredImages(store, 64)
    for one, other in zip(
        plain.seen(range(COUNT), 8, 1), stored.seen(range(COUNT), 8, 1), strict=True
    ):
        assert torch.equal(one, other)
    for (one, _), (other, _) in zip(
        plain.drawn(BATCHES, IMAGE_OF_DRAW, 3, 4, 1),
        stored.drawn(BATCHES, IMAGE_OF_DRAW, 3, 4, 1),
        strict=True,
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("live", ["device", "pinned", "host"])
def test_a_probes_crops_made_on_the_device_are_those_of_the_threads(store, live):
    threads = StoredImages(store, 64)
    device = DeviceImages(store, 64, torch.device("cpu"), live)
    some = [4, 0, 17, 9]
    for place in TEN:
        (one,) = threads.seen(some, 8, 2, place=place)
        (other,) = device.seen(some, 8, 2, place=place)
        assert (one.int() - other.int()).abs().max() <= 1
    drawn = zip(
        threads.drawn(BATCHES, IMAGE_OF_DRAW, 3, 4, 2, view=SHIFTED),
        device.drawn(BATCHES, IMAGE_OF_DRAW, 3, 4, 2, view=SHIFTED),
        strict=True,
    )
    for (one, draws), (other, same) in drawn:
        assert np.array_equal(draws, same)
        assert not len(draws) or (one.int() - other.int()).abs().max() <= 1


@pytest.mark.parametrize("live", ["device", "pinned", "host"])
@pytest.mark.parametrize("crops", [PAPER, CropRange(scale=0.6, ratio=2.0)])
def test_crops_made_on_the_device_are_those_of_the_threads(store, live, crops):
    threads = StoredImages(store, 64, crops)
    device = DeviceImages(store, 64, torch.device("cpu"), live, crops)
    assert device.channels == threads.channels == store.channels
    seen = zip(threads.seen(range(2, COUNT), 8, 2), device.seen(range(2, COUNT), 8, 2), strict=True)
    for one, other in seen:
        assert (one.int() - other.int()).abs().max() <= 1
    drawn = zip(
        threads.drawn(BATCHES, IMAGE_OF_DRAW, 3, 4, 2),
        device.drawn(BATCHES, IMAGE_OF_DRAW, 3, 4, 2),
        strict=True,
    )
    for (one, draws), (other, same) in drawn:
        assert one.shape == other.shape
        assert np.array_equal(draws, same)
        if len(draws):
            assert (one.int() - other.int()).abs().max() <= 1


@pytest.mark.parametrize("live", ["device", "pinned", "host"])
def test_a_draws_crop_does_not_depend_on_its_batch(store, live):
    images = DeviceImages(store, 64, torch.device("cpu"), live)
    together = torch.cat([c for c, _ in images.drawn(BATCHES, IMAGE_OF_DRAW, 3, 4, 1)])
    alone = torch.cat(
        [c for c, _ in images.drawn([np.array([d]) for d in range(60)], IMAGE_OF_DRAW, 3, 4, 1)]
    )
    assert torch.equal(together, alone)


def test_pinned_is_what_fits_twice_into_memory_for_every_process(monkeypatch):
    monkeypatch.setattr("os.sysconf", {"SC_AVPHYS_PAGES": 1000, "SC_PAGE_SIZE": 4096}.get)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert fits_pinned(1 << 20)
    assert not fits_pinned((1 << 20) + 1)  # torch would take two of these
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert fits_pinned(1 << 19)
    assert not fits_pinned(1 << 20)


def test_where_nothing_can_be_pinned_batches_are(store, monkeypatch):
    monkeypatch.setattr(on_device, "_pinned", lambda pixels, device: None)
    images = DeviceImages(store, 64, torch.device("cpu"), "pinned")
    assert images.live == "host"
    assert sum(len(batch) for batch in images.seen(range(COUNT), 8, 1)) == COUNT


def test_the_range_of_crops_reaches_the_crops(folder, store):
    narrow = CropRange(scale=1.0, ratio=1.0)
    kinds = (
        lambda crops: Images(folder, store.index, 64, crops),
        lambda crops: StoredImages(store, 64, crops),
        lambda crops: DeviceImages(store, 64, torch.device("cpu"), "device", crops),
    )
    for kind in kinds:
        (one, _), (other, _) = (
            next(kind(crops).drawn(BATCHES[:1], IMAGE_OF_DRAW, 3, 4, 1))
            for crops in (PAPER, narrow)
        )
        assert (one.int() - other.int()).abs().float().mean() > 2


def test_a_pass_may_begin_in_the_middle(store):
    images = DeviceImages(store, 64, torch.device("cpu"), "device")
    whole = torch.cat(list(images.seen(range(COUNT), 8, 1)))
    rest = torch.cat(list(images.seen(range(COUNT), 8, 1, start=8)))
    assert torch.equal(whole[8:], rest)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("live", ["device", "pinned", "host"])
def test_crops_made_on_a_gpu_are_those_of_the_threads(store, live):
    threads = StoredImages(store, 64)
    device = DeviceImages(store, 64, torch.device("cuda"), live)
    drawn = zip(
        threads.drawn(BATCHES[:3], IMAGE_OF_DRAW, 3, 4, 2),
        device.drawn(BATCHES[:3], IMAGE_OF_DRAW, 3, 4, 2),
        strict=True,
    )
    for (one, _), (other, _) in drawn:
        assert (one.int() - other.cpu().int()).abs().max() <= 1
