import math

import pytest
import torch
from torch import nn

from deepcluster.networks import build_network, fresh_head
from deepcluster.runtime.seeds import generator

ARCHITECTURES = ["alexnet", "vgg16", "resnet18"]


def weights(arch: str, seed: int) -> dict[str, torch.Tensor]:
    network = build_network(arch, "sobel", 64, width=16, generator=generator(seed, "network"))
    return network.state_dict()


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_weights_are_a_function_of_the_generator_alone(arch):
    torch.manual_seed(1)
    first = weights(arch, 0)
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = weights(arch, 0)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    other = weights(arch, 1)
    matrices = [name for name in first if first[name].dim() > 1]
    assert not any(torch.equal(first[name], other[name]) for name in matrices)


def test_distributions():
    network = build_network("alexnet", "rgb", 64, width=512, generator=generator(0, "network"))
    for part in network.modules():
        if isinstance(part, nn.Conv2d):
            fan_out = part.out_channels * part.kernel_size[0] * part.kernel_size[1]
            assert part.weight.std().item() == pytest.approx(math.sqrt(2 / fan_out), rel=0.03)
        elif isinstance(part, nn.Linear):
            assert part.weight.std().item() == pytest.approx(0.01, rel=0.03)
        elif isinstance(part, nn.BatchNorm2d):
            assert (part.weight == 1).all()
            assert (part.running_mean == 0).all()
            assert (part.running_var == 1).all()
            assert part.num_batches_tracked == 0
        if isinstance(part, nn.Conv2d | nn.Linear | nn.BatchNorm2d):
            assert (part.bias == 0).all()


def test_a_fresh_head():
    head = fresh_head(256, 100, generator(0, "head", 3))
    assert head.weight.shape == (100, 256)
    assert head.weight.mean().item() == pytest.approx(0, abs=3e-4)
    assert head.weight.std().item() == pytest.approx(0.01, rel=0.02)
    assert (head.bias == 0).all()
    assert torch.equal(head.weight, fresh_head(256, 100, generator(0, "head", 3)).weight)
    assert not torch.equal(head.weight, fresh_head(256, 100, generator(0, "head", 4)).weight)
