from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter1d

from deepcluster.images.jitter import JITTER_NUMBERS, NONE, Jitter
from deepcluster.runtime.seeds import uniforms


def crops(count: int, channels: int = 1, size: int = 40) -> torch.Tensor:
    source = torch.Generator().manual_seed(0)
    return torch.randint(60, 180, (count, channels, size, size), generator=source).byte()


def numbers(count: int) -> torch.Tensor:
    return torch.from_numpy(uniforms(0, "jitter", 0, np.arange(count), JITTER_NUMBERS))


def test_the_paper_changes_nothing():
    assert not NONE.changes
    assert torch.equal(NONE(crops(3), numbers(3)), crops(3).float())


def test_brightness_multiplies_all_levels_of_a_crop():
    before, random = crops(200).float(), numbers(200)
    after = Jitter(brightness=0.4)(before, random)
    factors = (after / before).flatten(1)
    assert factors.std(dim=1).max() < 1e-5
    assert factors[:, 0].numpy() == pytest.approx(1 + 0.4 * (2 * random[:, 0].numpy() - 1))


def test_contrast_keeps_the_mean():
    before, random = crops(200).float(), numbers(200)
    after = Jitter(contrast=0.4)(before, random)
    assert torch.allclose(after.mean(dim=(1, 2, 3)), before.mean(dim=(1, 2, 3)), atol=1e-2)
    factors = after.std(dim=(1, 2, 3)) / before.std(dim=(1, 2, 3))
    assert factors.numpy() == pytest.approx(1 + 0.4 * (2 * random[:, 1].numpy() - 1), abs=1e-4)


def test_levels_stay_levels():
    bright = (crops(50).int() + 75).byte()
    after = Jitter(brightness=1.0, contrast=1.0)(bright, numbers(50))
    assert after.min() >= 0
    assert after.max() <= 255


def test_blur_is_scipys_gaussian_on_its_share_of_the_crops():
    before, random = crops(60, channels=3), numbers(60)
    after = Jitter(blur=0.5)(before, random)
    blurred = random[:, 2] < 0.5
    assert 15 < int(blurred.sum()) < 45
    assert torch.equal(after[~blurred], before[~blurred].float())
    for row in blurred.nonzero()[:5, 0].tolist():
        expected = before[row].double().numpy()
        sigma = 0.3 + 1.7 * float(random[row, 3])
        for axis in (1, 2):
            expected = gaussian_filter1d(expected, sigma, axis=axis, mode="mirror", radius=4)
        np.testing.assert_allclose(after[row].numpy(), expected, atol=0.01)


def test_erasing_hides_one_rectangle_of_its_share_of_the_crops():
    before, random = crops(400), numbers(400)
    after = Jitter(erase=0.6)(before, random)
    changed = after != before.float()
    hit = changed.flatten(1).any(dim=1)
    assert torch.equal(hit, random[:, 4] < 0.6)
    shares = []
    for row in hit.nonzero()[:, 0].tolist():
        where = changed[row, 0].nonzero()
        first, last = where.min(dim=0).values, where.max(dim=0).values
        top, left, bottom, right = *first.tolist(), *(last + 1).tolist()
        inside = after[row, 0, top:bottom, left:right]
        mean = float(before[row].float().mean())
        assert inside.numpy() == pytest.approx(mean, abs=1e-3)
        shares.append(inside.numel() / 1600)
    assert 0.01 < min(shares) < 0.05
    assert 0.2 < max(shares) < 0.3


def test_a_crop_does_not_depend_on_the_others_of_its_batch():
    everything = Jitter(brightness=0.3, contrast=0.3, blur=0.5, erase=0.5)
    before, random = crops(24), numbers(24)
    together = everything(before, random)
    alone = torch.cat([everything(before[i : i + 1], random[i : i + 1]) for i in range(24)])
    assert torch.allclose(together, alone, atol=1e-3)
