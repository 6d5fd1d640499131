import torch
from torch.nn import functional as F

from deepcluster.networks import Sobel


def test_by_hand():
    # A step from 0 to 3 between the second and the third column, the same in every row.
    grey = torch.tensor([[0.0, 0.0, 3.0, 3.0]]).expand(4, 4)[None, None]
    across, down = Sobel()(grey)[0]
    # Rows at the border see one row of zeros, so weights 2 + 1 there and 1 + 2 + 1 inside.
    # In the last column the zeros outside are a step back down.
    inside = torch.tensor([0.0, -12.0, -12.0, 12.0])
    assert torch.equal(across, torch.stack([0.75 * inside, inside, inside, 0.75 * inside]))
    edge = torch.tensor([0.0, 3.0, 9.0, 9.0])
    still = torch.zeros(4)
    assert torch.equal(down, torch.stack([-edge, still, still, edge]))


def test_grey_is_a_third_of_each_channel():
    images = torch.randn(2, 3, 9, 7, dtype=torch.float64)
    across = torch.tensor([[1, 0, -1], [2, 0, -2], [1, 0, -1]], dtype=torch.float64)
    weight = torch.stack([across, across.T])[:, None].expand(2, 3, 3, 3) / 3
    torch.testing.assert_close(Sobel().double()(images), F.conv2d(images, weight, padding=1))


def test_one_channel_is_three_equal_ones():
    grey = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(Sobel()(grey), Sobel()(grey.expand(2, 3, 8, 8)))


def test_nothing_is_learnt_or_saved():
    assert list(Sobel().parameters()) == []
    assert Sobel().state_dict() == {}
