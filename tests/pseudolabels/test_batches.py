"""The draws through the real loader: what the network is shown is what was drawn."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from deepcluster.images.index import Index
from deepcluster.images.jitter import Jitter
from deepcluster.images.loader import Images
from deepcluster.pseudolabels import Batch, Draw, Draws, training_batches
from deepcluster.pseudolabels.batches import batch_bounds
from deepcluster.runtime.seeds import generator
from deepcluster.runtime.world import World

SIZES = (1, 4, 15, 40)
COUNT = sum(SIZES)


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Images:
    """Images of one colour each, which tells their number whatever part is cut out."""
    root: Path = tmp_path_factory.mktemp("colours")
    (root / "note.png").write_text("no image; it has no number")
    for number in range(COUNT):
        colour = (4 * number, 255 - 4 * number, 128)
        Image.new("RGB", (64 + number, 70), colour).save(root / f"{number:03d}.png")
    return Images(root, Index.build(root, workers=2), 64)


@pytest.fixture
def labels() -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(SIZES)), SIZES))


def epoch_of(
    images: Images, labels: np.ndarray, draws: Draws, world: World, batch: int = 16, start: int = 0
) -> list[Batch]:
    return list(
        training_batches(
            images,
            labels,
            draws,
            batch=batch,
            seed=3,
            epoch=2,
            world=world,
            workers=2,
            start=start,
        )
    )


def shown(batches: list[Batch]) -> np.ndarray:
    """The numbers of the images that the pixels show."""
    pixels = torch.cat([batch.images for batch in batches])
    assert bool((pixels == pixels[:, :, :1, :1]).all())
    return pixels[:, 0, 0, 0].numpy() // 4


@pytest.mark.parametrize("kind", ["uniform", "natural", "weighted"])
@pytest.mark.parametrize("reassign", [0.5, 1.0, 2.0])
def test_pixels_labels_and_weights_are_those_of_the_draws(images, labels, kind, reassign):
    draws = Draw(kind, reassign)(labels, generator(0, "draw", 0))
    batches = epoch_of(images, labels, draws, World())
    assert shown(batches).tolist() == draws.images.tolist()
    told = torch.cat([batch.labels for batch in batches])
    assert told.tolist() == labels[draws.images].tolist()
    assert told.dtype == torch.int64
    weights = torch.cat([batch.weights for batch in batches])
    assert weights.tolist() == draws.weights.tolist()


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_labels_that_reach_the_network_are_uniform(images, labels, processes):
    draws = Draw(reassign=3)(labels, generator(0, "draw", 0))
    seen = np.concatenate(
        [shown(epoch_of(images, labels, draws, World(r, processes))) for r in range(processes)]
    )
    counts = np.bincount(labels[seen], minlength=len(SIZES))
    assert counts.sum() == 3 * COUNT
    assert counts.max() - counts.min() <= 1


@pytest.mark.parametrize("processes", [2, 3])
def test_the_shares_of_all_processes_are_the_batches_of_one(images, labels, processes):
    draws = Draw()(labels, generator(0, "draw", 0))  # 60 draws, in batches of 16 and 12
    alone = epoch_of(images, labels, draws, World())
    shares = [epoch_of(images, labels, draws, World(r, processes)) for r in range(processes)]
    for whole, *parts in zip(alone, *shares, strict=True):
        assert torch.equal(torch.cat([part.images for part in parts]), whole.images)
        assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)
        assert {part.total for part in parts} == {len(whole.labels)}
        assert {part.step for part in parts} == {whole.step}


def test_an_epoch_taken_up_goes_on_as_it_would_have(images, labels):
    draws = Draw()(labels, generator(0, "draw", 0))
    whole = epoch_of(images, labels, draws, World())
    rest = epoch_of(images, labels, draws, World(), start=2)
    assert [batch.step for batch in rest] == [2, 3]
    for batch, same in zip(rest, whole[2:], strict=True):
        assert torch.equal(batch.images, same.images)
        assert torch.equal(batch.labels, same.labels)


def test_an_epoch_taken_up_at_its_end_has_no_batch_left(images, labels):
    draws = Draw()(labels, generator(0, "draw", 0))
    assert epoch_of(images, labels, draws, World(), start=4) == []


def test_a_repeated_image_gets_another_crop(tmp_path):
    ramp = np.arange(128, dtype=np.uint8)[None, :, None].repeat(128, 0).repeat(3, 2)
    for name in "ab":
        Image.fromarray(ramp).save(tmp_path / f"{name}.png")
    ramps = Images(tmp_path, Index.build(tmp_path, workers=1), 64)
    draws = Draws(np.zeros(6, dtype=np.int64), np.ones(6, dtype=np.float32))
    (batch,) = epoch_of(ramps, np.zeros(2, dtype=np.int64), draws, World(), batch=6)
    assert len({crop.numpy().tobytes() for crop in batch.images}) == 6


def test_a_remainder_of_its_own():
    assert batch_bounds(10, 4) == [(0, 4), (4, 8), (8, 10)]


def test_a_remainder_too_small_for_batch_norm_goes_with_the_step_before():
    assert batch_bounds(9, 4) == [(0, 4), (4, 9)]
    assert batch_bounds(35, 16) == [(0, 16), (16, 35)]
    assert batch_bounds(36, 16) == [(0, 16), (16, 32), (32, 36)]


def test_a_remainder_that_is_all_there_is():
    assert batch_bounds(1, 4) == [(0, 1)]


@given(st.integers(2, 500), st.integers(8, 64), st.integers(1, 4))
def test_the_steps_hold_every_draw_once_and_suffice_for_batch_norm(count, batch, processes):
    bounds = batch_bounds(count, batch)
    assert [draw for start, stop in bounds for draw in range(start, stop)] == list(range(count))
    if count >= 2 * processes and batch >= 8 * processes:
        shares = [World(r, processes).share(b - a) for a, b in bounds for r in range(processes)]
        assert min(map(len, shares)) >= 2


def test_jitter_is_the_same_whoever_draws(images: Images, labels: np.ndarray):
    draws = Draw()(labels, torch.Generator().manual_seed(0))

    def of(world: World, jitter: Jitter) -> list[torch.Tensor]:
        options = {"batch": 16, "seed": 3, "epoch": 2, "workers": 1, "jitter": jitter}
        return [
            batch.images.float()
            for batch in training_batches(images, labels, draws, world=world, **options)
        ]

    bright = Jitter(brightness=0.5)
    alone, plain = of(World(), bright), of(World(), Jitter())
    shares = zip(*(of(World(rank, 2), bright) for rank in (0, 1)), strict=True)
    assert all(torch.equal(one, torch.cat(parts)) for one, parts in zip(alone, shares, strict=True))
    changes = torch.cat([one - other for one, other in zip(alone, plain, strict=True)])
    assert changes.flatten(1).abs().amax(dim=1).gt(1).float().mean() > 0.9
