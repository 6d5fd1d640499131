import pytest
import torch
from kernel_child import says_equal
from torch.nn import functional as F

from deepcluster.networks import Sobel

KERNEL = """
import torch
from deepcluster.networks import Sobel
from deepcluster.networks.sobel_kernel import sobel_by_kernel
for shape in ((3, 1, 33, 40), (1, 1, 1, 1), (2, 1, 1, 7), (2, 1, 9, 1), (0, 1, 4, 4)):
    grey = torch.randn(shape)
    grey.view(-1)[1:2] = 1e4
    contrasts = sobel_by_kernel(grey.to({device!r}))
    torch.testing.assert_close(contrasts.cpu(), Sobel()(grey), rtol=1e-6, atol=1e-3)
    assert contrasts.is_contiguous(memory_format=torch.channels_last)
    turned = torch.randn(2, 1, 12, 8).transpose(2, 3)
    torch.testing.assert_close(sobel_by_kernel(turned.to({device!r})).cpu(), Sobel()(turned))
print("equal")
"""


def kernel_agrees(device: str, **environment: str) -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    says_equal("-c", KERNEL.format(device=device), **environment)


def test_the_kernel_is_the_plain_version_under_the_interpreter():
    kernel_agrees("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernel_is_the_plain_version_on_a_gpu():
    kernel_agrees("cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_uses_the_kernel_but_for_what_is_learnt_by():
    images = torch.randn(2, 3, 20, 24, device="cuda")
    sobel = Sobel().cuda()
    quick = sobel(images)
    slow = sobel(images.clone().requires_grad_())
    assert quick.is_contiguous(memory_format=torch.channels_last)
    assert slow.requires_grad
    torch.testing.assert_close(quick, slow.detach(), rtol=1e-5, atol=1e-5)


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
