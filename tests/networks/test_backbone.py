import pytest
import torch

from deepcluster.networks import AlexNet, Backbone, Network, backbone_names, build_network
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.seeds import generator

# One of each way in which torchvision ends its networks, with the width of what comes before.
WIDTHS = {
    "resnet18": 512,
    "mobilenet_v3_small": 576,
    "convnext_tiny": 768,
    "densenet121": 1024,
    "efficientnet_b0": 1280,
    "squeezenet1_1": 512,
    "shufflenet_v2_x0_5": 1024,
    "regnet_y_400mf": 440,
    "mnasnet0_5": 1280,
    "googlenet": 1024,
    "swin_t": 768,
    "vit_b_16": 768,
}


def built(arch: str, front: str = "sobel", input_size: int = 64) -> Network:
    return build_network(arch, front, input_size, generator=generator(0, "network"))


@pytest.mark.parametrize("name", WIDTHS)
def test_the_pooled_output_is_the_feature(name):
    network = built(name).eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        features = network.trunk(images)
        alone = network.trunk(images[1:])
        scores = network(images)
        found = network.activations(images, list(network.layers))
    assert features.shape == (2, WIDTHS[name]) == (2, network.width)
    assert features.isfinite().all()
    assert torch.equal(scores, features)  # no head yet, and no ReLU of ours in between
    torch.testing.assert_close(features[1:], alone, rtol=1e-5, atol=1e-5)
    assert torch.equal(found["pooled"], features)
    assert len(found) > 4


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_1", "googlenet"])
def test_colour_images_and_training(name):
    network = built(name, "rgb")
    network(torch.randn(4, 3, 64, 64)).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_the_first_convolution_keeps_the_weights_that_were_drawn():
    colour = built("resnet18", "rgb").trunk.convnet.model.conv1.weight
    contrast = built("resnet18", "sobel").trunk.convnet.model.conv1.weight
    assert torch.equal(colour[:, :2], contrast)


def test_layers_of_a_resnet():
    network = built("resnet18")
    assert list(network.layers) == ["relu", "layer1", "layer2", "layer3", "layer4", "pooled"]
    found = network.activations(torch.randn(2, 3, 64, 64), ["layer3", "relu"])
    assert {name: tuple(found[name].shape) for name in found} == {
        "layer3": (2, 256, 4, 4),
        "relu": (2, 64, 32, 32),
    }
    assert found["relu"].min() == 0


def test_our_names_win_and_torchvisions_have_a_prefix():
    assert isinstance(built("alexnet").trunk.convnet, AlexNet)
    assert isinstance(built("torchvision/alexnet").trunk.convnet, Backbone)
    assert {"alexnet", "vgg16"} <= set(backbone_names())


@pytest.mark.parametrize("wrong", ["resnet81", "ResNet18", "torchvision/resnet19"])
def test_an_unknown_name_suggests_a_known_one(wrong):
    with pytest.raises(UsageError, match=r"did you mean .*resnet18"):
        built(wrong)


def test_a_name_like_none_is_refused_without_a_suggestion():
    with pytest.raises(UsageError, match="no network is called 'zzz'"):
        built("zzz")


def test_a_size_the_network_cannot_take():
    with pytest.raises(UsageError, match="vit_b_16 does not take images of 60 x 60"):
        built("vit_b_16", input_size=60)
