"""The pass over the images."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from deepcluster.features import Looking, extract, raw_rows
from deepcluster.images.index import Index
from deepcluster.images.loader import Images
from deepcluster.runtime.world import World

ALONE = World()


@pytest.mark.parametrize("training", [True, False])
def test_the_network_looks_in_evaluation_mode_and_is_put_back(lookup, mixed_rows, training):
    trunk, images = lookup(mixed_rows(120, 6))
    trunk.train(training)
    extract(trunk, images, ALONE, Looking(batch=50))
    assert trunk.modes == [False, False, False]
    assert trunk.training is training


def test_the_network_is_put_back_when_the_pass_fails(lookup, mixed_rows):
    def fail(batch: int) -> None:
        raise MemoryError

    trunk, images = lookup(mixed_rows(120, 6), fail)
    trunk.train()
    with pytest.raises(MemoryError):
        extract(trunk, images, ALONE, Looking(batch=50))
    assert trunk.training


def test_looking_moves_no_running_average_and_keeps_no_graph(lookup, mixed_rows):
    trunk, images = lookup(mixed_rows(120, 6))
    network = nn.Sequential(trunk, nn.BatchNorm1d(6)).train()
    raw = extract(network, images, ALONE, Looking(batch=50))
    assert not network[1].running_mean.any()
    assert not any(block.requires_grad for block in raw.rows.blocks())


@pytest.mark.parametrize("room", [0, 2**20])
def test_progress_counts_every_image_once(lookup, mixed_rows, monkeypatch, room):
    monkeypatch.setattr(raw_rows, "_ROOM_OF_A_CPU", room)
    for keep in ("device", "recompute"):
        trunk, images = lookup(mixed_rows(120, 6))
        counts = []
        raw = extract(trunk, images, ALONE, Looking(batch=50, keep=keep, advance=counts.append))
        list(raw.rows.blocks())
        assert sum(counts) == 120


def test_rows_for_which_there_is_room_are_computed_once(lookup, mixed_rows, monkeypatch):
    rows = mixed_rows(120, 6)
    found = []
    for room, passes in ((120 * 6 * 4, 1), (120 * 6 * 4 - 1, 3)):
        monkeypatch.setattr(raw_rows, "_ROOM_OF_A_CPU", room)
        trunk, images = lookup(rows)
        raw = extract(trunk, images, ALONE, Looking(batch=50, keep="recompute"))  # reads them once
        found += [torch.cat(list(raw.rows.blocks())) for _ in range(2)]
        assert trunk.batches == 3 * passes
    assert all(torch.equal(some, rows) for some in found)


def test_row_i_is_image_i_through_the_real_loader(tmp_path):
    for number in range(40):
        colour = Image.new("RGB", (64, 64), (6 * number, 0, 255 - 6 * number))
        colour.save(tmp_path / f"{number:03d}.png")
    images = Images(tmp_path, Index.build(tmp_path, workers=2), 64)

    class Colour(nn.Module):
        def forward(self, pixels):
            return pixels.mean(dim=(2, 3))

    raw = extract(Colour(), images, ALONE, Looking(batch=16, workers=2, keep="recompute"))
    red = torch.cat(list(raw.rows.blocks()))[:, 0] * (0.229 * 255) + 0.485 * 255
    np.testing.assert_allclose(red, 6 * np.arange(40), atol=0.01)
