"""Two optimizers, and their momenta across a resume."""

import pytest
import torch
from torch.optim import SGD

from deepcluster.training.optimizers import Optimization, momenta, restore_momenta


def stepped(parameter: torch.nn.Parameter, optimizer: SGD, steps: range) -> None:
    for step in steps:
        parameter.grad = torch.sin(parameter.detach() + step)
        optimizer.step()


def new_parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))


def test_no_momenta_before_the_first_step():
    assert momenta(SGD([new_parameter()], lr=0.1, momentum=0.9)) == {}


def test_without_momentum_there_is_nothing_to_keep():
    parameter = new_parameter()
    optimizer = SGD([parameter], lr=0.1)
    stepped(parameter, optimizer, range(3))
    assert momenta(optimizer) == {}


def test_an_optimizer_goes_on_exactly_where_it_stopped():
    parameter = new_parameter()
    optimizer = SGD([parameter], lr=0.1, momentum=0.9, weight_decay=1e-2)
    stepped(parameter, optimizer, range(5))
    kept = {place: buffer.clone() for place, buffer in momenta(optimizer).items()}
    copy = torch.nn.Parameter(parameter.detach().clone())
    resumed = SGD([copy], lr=0.1, momentum=0.9, weight_decay=1e-2)
    restore_momenta(resumed, kept)
    stepped(parameter, optimizer, range(5, 9))
    stepped(copy, resumed, range(5, 9))
    assert torch.equal(copy, parameter)
    assert torch.equal(momenta(resumed)["0"], momenta(optimizer)["0"])


def test_momenta_come_back_in_the_layout_of_their_weights():
    """A GPU's fused step refuses others; files keep all in one order."""
    weight = torch.nn.Parameter(torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last))
    optimizer = SGD([weight], lr=0.1, momentum=0.9)
    restore_momenta(optimizer, {"0": torch.ones(4, 3, 5, 5)})
    restored = momenta(optimizer)["0"]
    assert restored.stride() == weight.stride()
    assert torch.equal(restored, torch.ones(4, 3, 5, 5))
    assert not restored.requires_grad


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_goes_on_with_momenta_from_a_file(tiny):
    network = tiny().cuda().to(memory_format=torch.channels_last)
    optimizer = Optimization().for_trunk(network)
    kept = {str(i): torch.zeros(p.shape) for i, p in enumerate(network.trunk.parameters())}
    restore_momenta(optimizer, kept)
    for parameter in network.trunk.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    assert all(bool((buffer != 0).all()) for buffer in momenta(optimizer).values())


def test_what_was_kept_is_not_moved_by_later_steps():
    parameter = new_parameter()
    optimizer = SGD([parameter], lr=0.1, momentum=0.9)
    kept = {"0": torch.ones(2, 3)}
    restore_momenta(optimizer, kept)
    stepped(parameter, optimizer, range(2))
    assert torch.equal(kept["0"], torch.ones(2, 3))


def test_the_papers_values(tiny):
    network = tiny()
    trunk, head = Optimization().for_trunk(network), Optimization().for_head(network)
    group = trunk.param_groups[0]
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.05, 0.9, 1e-5)
    assert (head.param_groups[0]["lr"], head.param_groups[0]["momentum"]) == (0.05, 0.0)


def test_every_parameter_belongs_to_one_of_the_two(tiny):
    network = tiny()
    ours = [
        parameter
        for optimizer in (Optimization().for_trunk(network), Optimization().for_head(network))
        for parameter in optimizer.param_groups[0]["params"]
    ]
    assert len(ours) == len(set(ours))
    assert set(ours) == set(network.parameters())
