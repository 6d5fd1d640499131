"""A folded convolution is the convolution."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from deepcluster.networks import folded as module
from deepcluster.networks.folded import FoldedConv2d, folded


@settings(max_examples=60, deadline=None)
@given(
    channels=st.integers(1, 3),
    side=st.integers(1, 11),
    step=st.integers(1, 5),
    padding=st.integers(0, 3),
    extents=st.tuples(st.integers(11, 40), st.integers(11, 40)),
)
def test_it_is_the_convolution_with_its_gradients(channels, side, step, padding, extents):
    made = torch.Generator().manual_seed(0)
    shapes = (2, channels, *extents), (4, channels, side, side), (4,)
    ours = [torch.randn(shape, generator=made, dtype=torch.float64) for shape in shapes]
    theirs = [tensor.clone() for tensor in ours]
    for tensor in (*ours, *theirs):
        tensor.requires_grad_()
    result = folded(*ours, step, padding)
    expected = F.conv2d(*theirs, stride=step, padding=padding)
    torch.testing.assert_close(result, expected)
    upon = torch.randn(expected.shape, generator=made, dtype=torch.float64)
    result.backward(upon)
    expected.backward(upon)
    for own, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad, other.grad)


def test_its_weights_are_those_of_a_plain_one():
    plain = torch.nn.Conv2d(2, 96, 11, stride=4, padding=2)
    quick = FoldedConv2d(2, 96, 11, stride=4, padding=2)
    quick.load_state_dict(plain.state_dict())
    images = torch.randn(2, 2, 64, 64)
    assert torch.equal(quick(images), plain(images))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("size", [64, 128, 225])
def test_half_precision_on_a_gpu_is_as_exact_as_the_plain_convolution(size, monkeypatch):
    taken = []
    monkeypatch.setattr(module, "folded", lambda *given: taken.append(1) or folded(*given))
    torch.manual_seed(0)
    quick = FoldedConv2d(2, 96, 11, stride=4, padding=2).cuda()
    images = torch.randn(8, 2, size, size, device="cuda").to(memory_format=torch.channels_last)
    exact = F.conv2d(
        images.double(), quick.weight.double(), quick.bias.double(), stride=4, padding=2
    )
    with torch.autocast("cuda", torch.bfloat16):
        result = quick(images)
        plain = F.conv2d(images, quick.weight, quick.bias, stride=4, padding=2)
    assert result.dtype == torch.bfloat16
    assert result.shape == plain.shape
    assert result.is_contiguous(memory_format=torch.channels_last)
    assert taken
    assert (result - exact).abs().mean() < 1.1 * (plain - exact).abs().mean()
