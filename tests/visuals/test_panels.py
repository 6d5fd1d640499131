"""Pages of pictures: everything has its place, and what is gone its name."""

from __future__ import annotations

import numpy as np
from PIL import Image

from deepcluster.visuals.panels import Block, in_rows, laid_out, mosaic, named_tile


def test_a_mosaic_has_a_place_for_every_picture():
    red, blue = (Image.new("RGB", (10, 10), colour) for colour in ("red", "blue"))
    made = np.asarray(mosaic([red, blue, red], across=2, side=10, gap=2))
    assert made.shape == (22, 22, 3)
    assert made[5, 5].tolist() == made[17, 5].tolist() == [255, 0, 0]
    assert made[5, 17].tolist() == [0, 0, 255]
    assert made[5, 11].tolist() == made[17, 17].tolist() == [255, 255, 255]


def test_what_is_gone_is_a_grey_tile_with_its_name():
    tile = np.asarray(named_tile("holiday/beach.jpg"))
    assert tile[-1, -1].tolist() == [200, 200, 200]
    assert (tile < 100).any()  # something is written
    assert not np.array_equal(tile, np.asarray(named_tile("holiday/town.jpg")))
    long = np.asarray(named_tile("a/very long path " * 40 + "beach.jpg"))
    assert (long[-2:] == 200).all()  # and nothing runs over the foot


def test_columns_stay_in_line_where_a_block_is_empty():
    red, blue = (Image.new("RGB", (10, 10), colour) for colour in ("red", "blue"))
    rows = [[Block("a", [red]), Block("", [red]), Block("", [blue])]]
    rows.append([Block("b", [red]), Block("", []), Block("", [blue])])
    page = np.asarray(laid_out(rows, ["one", "two", "three"]))
    columns = np.nonzero((page == (0, 0, 255)).all(axis=2))[1]
    assert len(columns) == 200
    assert np.ptp(columns) == 9  # both lie in the third column


def test_blocks_in_rows():
    blocks = [Block(str(number), []) for number in range(5)]
    assert [[block.title for block in row] for row in in_rows(blocks, 2)] == [
        ["0", "1"],
        ["2", "3"],
        ["4"],
    ]
