import pytest
import torch
from torch import nn

from deepcluster.networks import Network, Sobel, build_network, fresh_head
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator


@pytest.fixture
def network() -> Network:
    return build_network("alexnet", "sobel", 64, width=16, generator=generator(0, "network")).eval()


def test_the_front_is_part_of_the_trunk(network):
    assert isinstance(network.front, Sobel)
    colour = build_network("alexnet", "rgb", 64, width=16, generator=generator(0, "network"))
    assert isinstance(colour.front, nn.Identity)
    colours = torch.randn(2, 3, 64, 64)
    grey = colours.mean(dim=1, keepdim=True)
    torch.testing.assert_close(network.trunk(colours), network.trunk(grey), rtol=1e-4, atol=1e-5)


def test_a_head_can_be_replaced(network):
    images = torch.randn(2, 3, 64, 64)
    for count in (5, 9):
        network.head = fresh_head(network.width, count, generator(0, "head", count))
        assert network(images).shape == (2, count)
    assert [name for name in network.state_dict() if name.startswith("head")] == [
        "head.weight",
        "head.bias",
    ]


def test_activations_leave_no_hook_behind(network):
    images = torch.randn(1, 3, 64, 64)
    network.activations(images, ["conv1", "fc7"])
    with pytest.raises(RuntimeError):
        network.activations(torch.randn(1, 5, 5), ["conv5"])
    assert not any(module._forward_hooks for module in network.modules())


def test_activations_come_in_the_order_asked_and_may_be_asked_twice(network):
    images = torch.randn(1, 3, 64, 64)
    assert list(network.activations(images, ["fc6", "conv2", "conv2"])) == ["fc6", "conv2"]
    assert network.activations(images, []) == {}


def test_convolutions_answer_for_images_of_any_size(network):
    found = network.activations(torch.randn(1, 3, 100, 161), ["conv3", "conv5"])
    assert found["conv5"].shape == (1, 256, 5, 9)


def test_activations_carry_gradients_to_the_image(network):
    images = torch.randn(1, 3, 64, 64, requires_grad=True)
    network.activations(images, ["conv3"])["conv3"][0, 7].mean().backward()
    assert images.grad is not None
    assert images.grad.abs().max() > 0


def test_an_unknown_layer_is_answered_with_the_known_ones(network):
    with pytest.raises(UsageError, match=r"'conv6'; there are conv1, .*fc7"):
        network.activations(torch.randn(1, 3, 64, 64), ["conv6"])
