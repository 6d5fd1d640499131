import pytest
import torch
from torch import nn

from deepcluster.networks import VGG16, AlexNet, Network, build_network, fresh_head
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator

FILTERS = {
    "alexnet": [96, 256, 384, 384, 256],
    "vgg16": [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512],
}


def small(arch: str, front: str = "sobel", input_size: int = 64) -> Network:
    return build_network(arch, front, input_size, width=32, generator=generator(0, "network"))


def count(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(
    ("arch", "convolutions", "connected"),
    [("alexnet", 3_738_336, 54_534_144), ("vgg16", 14_722_560, 119_545_856)],
)
def test_parameter_counts_of_the_paper(arch, convolutions, connected):
    with torch.device("meta"):
        network = build_network(arch, "sobel", 224, generator=generator(0, "network"))
        network.head = fresh_head(network.width, 10_000, generator(0, "head", 0))
    convnet = network.trunk.convnet
    assert all(parameter.is_meta for parameter in network.parameters())
    assert count(convnet.convolutions) == convolutions
    assert count(convnet.fc6, convnet.fc7) == connected
    assert count(network.head) == 40_970_000
    assert count(network) == convolutions + connected + 40_970_000


@pytest.mark.parametrize("arch", ["alexnet", "vgg16"])
@pytest.mark.parametrize(
    ("front", "channels", "input_size"),
    [("sobel", 1, 64), ("sobel", 3, 128), ("rgb", 3, 64), ("rgb", 3, 224)],
)
def test_shapes(arch, front, channels, input_size):
    network = small(arch, front, input_size).eval()
    with torch.no_grad():
        features = network.trunk(torch.randn(2, channels, input_size, input_size))
    assert features.shape == (2, network.width) == (2, 32)
    assert features.isfinite().all()


@pytest.mark.parametrize("arch", ["alexnet", "vgg16"])
def test_layers_are_named_and_taken_after_their_relu(arch):
    network = small(arch).eval()
    images = torch.randn(4, 3, 64, 64)
    names = [f"conv{number}" for number in range(1, len(FILTERS[arch]) + 1)]
    assert list(network.layers) == [*names, "fc6", "fc7"]
    with torch.no_grad():
        found = network.activations(images, list(network.layers))
        features = network.trunk(images)
        scores = network(images)
    assert [found[name].shape[1] for name in names] == FILTERS[arch]
    for name in [*names, "fc6"]:
        assert found[name].min() == 0
        assert found[name].max() > 0
    assert torch.equal(found["fc7"], features)
    assert features.min() < 0
    assert torch.equal(scores, features.relu())  # no head yet: what the head would be given


def test_the_head_is_given_rectified_features():
    network = small("alexnet").eval()
    network.head = fresh_head(network.width, 7, generator(0, "head", 0))
    images = torch.randn(3, 3, 64, 64)
    torch.testing.assert_close(network(images), network.head(network.trunk(images).relu()))


def test_alexnet_at_64_pixels_leaves_one_place_and_at_224_six_by_six():
    with torch.device("meta"):
        inputs = [
            AlexNet(2, size, generator=generator(0, "network")).fc6[1].in_features
            for size in (64, 128, 224)
        ]
        vgg_inputs = [
            VGG16(2, size, generator=generator(0, "network")).fc6[0].in_features
            for size in (64, 128, 224)
        ]
    assert inputs == [256, 256 * 3 * 3, 256 * 6 * 6]
    assert vgg_inputs == [512 * 2 * 2, 512 * 4 * 4, 512 * 7 * 7]


@pytest.mark.parametrize("kind", [AlexNet, VGG16])
@pytest.mark.parametrize("size", [64, 79, 96, 101, 130])
def test_what_fc6_is_given_is_what_the_convolutions_leave(kind, size):
    network = kind(2, size, width=8, generator=generator(0, "network")).eval()
    with torch.no_grad():
        assert network.convolutions(torch.zeros(1, 2, size, size)).numel() == network.flat_width(
            size
        )


def test_images_too_small_are_refused():
    with pytest.raises(UsageError, match="larger input size"):
        small("alexnet", input_size=32)


def test_a_vector_does_not_depend_on_its_batch():
    network = small("alexnet").eval()
    images = torch.randn(5, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(
            network.trunk(images)[2:3], network.trunk(images[2:3]), rtol=1e-5, atol=1e-5
        )


def test_channels_last_gives_the_same_features():
    network = small("alexnet").eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        expected = network.trunk(images)
        network.to(memory_format=torch.channels_last)
        found = network.trunk(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_dropout_is_the_one_asked_for():
    network = build_network("vgg16", "rgb", 32, 0.2, 8, generator=generator(0, "network"))
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.2]
    network = build_network("alexnet", "rgb", 64, 0.2, 8, generator=generator(0, "network"))
    assert [m.p for m in network.modules() if isinstance(m, nn.Dropout)] == [0.2, 0.2]
