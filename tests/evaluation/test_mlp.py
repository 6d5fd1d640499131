from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from deepcluster.evaluation import mlp
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Candidate, StackedSGD, loss_of
from deepcluster.evaluation.mlp import MLPProbe, MLPReadout
from deepcluster.networks import build_network
from deepcluster.runtime.errors import UsageError
from deepcluster.runtime.world import World

CPU = torch.device("cpu")
QUICK = MLPProbe(epochs=6, batch=8, steps=(0.01, 0.03), watch=6, hidden=32)


def batch(count: int = 40, width: int = 12) -> tuple[Tensor, Tensor]:
    randomness = torch.Generator().manual_seed(0)
    rows = torch.randn(1, count, width, generator=randomness) / width**0.5
    return rows, torch.randint(3, (count,), generator=randomness)


def trained(candidates: list[Candidate], dropout: float, steps: int = 20) -> MLPReadout:
    rows, classes = batch()
    readout = MLPReadout(len(candidates), (12, 16, 3), dropout, 0, CPU)
    optimizer = StackedSGD(readout.parameters, [candidates], 0.9)
    for step in range(steps):
        loss_of(readout.scores(rows, dropout_seed=step), classes, len(classes)).backward()
        optimizer.step(1.0, World())
    return readout


def test_candidates_trained_together_are_those_trained_alone():
    candidates = [Candidate(0.01, 0.0), Candidate(0.05, 1e-2)]
    together = trained(candidates, dropout=0.5)
    for place, candidate in enumerate(candidates):
        alone = trained([candidate], dropout=0.5)
        for ours, theirs in zip(together.parameters[0], alone.parameters[0], strict=True):
            assert torch.allclose(ours[place], theirs[0], atol=1e-5)
    weights = together.parameters[0][0]
    assert (weights[0] - weights[1]).abs().max() > 1e-3


def test_it_is_torchs_own_network():
    rows, _ = batch()
    readout = trained([Candidate(0.02, 1e-3), Candidate(0.01, 0)], dropout=0.0)
    layers = [nn.Linear(12, 16), nn.Linear(16, 16), nn.Linear(16, 3)]
    tensors = iter(readout.parameters[0])
    for layer in layers:
        layer.weight.data, layer.bias.data = next(tensors)[1], next(tensors)[1]
    network = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    expected = network(rows[0] * 12**0.5)
    assert torch.allclose(readout.scores(rows)[0, :, 1], expected, atol=1e-5)


def test_numbers_that_are_not_scaled_are_what_the_network_says(
    planted, splits_of_colours, monkeypatch: pytest.MonkeyPatch
):
    """Of unit length they are brought to about 1; others are as they are."""
    made: dict[str, MLPReadout] = {}

    def noted(settings: MLPProbe, _features, new_readout, *_images) -> None:
        made[settings.scaling] = new_readout(1, [12])

    monkeypatch.setattr(mlp, "probed", noted)
    for scaling in ("none", "layer", "feature"):
        replace(QUICK, scaling=scaling)(planted, *splits_of_colours, Bench())
    rows, _ = batch()
    raw = made["none"].scores(rows)
    assert torch.equal(made["layer"].scores(rows), made["feature"].scores(rows))
    assert torch.equal(made["layer"].scores(rows), made["none"].scores(rows * 12**0.5))
    w6, _, w7, _, w8, _ = (one[0] for one in made["none"].parameters[0])
    by_hand = ((rows[0] @ w6.T).relu() @ w7.T).relu() @ w8.T  # the biases are zero
    torch.testing.assert_close(raw[0, :, 0], by_hand)


def test_dropout_drops_its_share_and_keeps_the_mean():
    readout = MLPReadout(1, (2000, 4, 3), 0.25, 0, CPU)
    kept = readout._kept(torch.ones(50, 2000), torch.Generator().manual_seed(0))
    assert float((kept == 0).float().mean()) == pytest.approx(0.25, abs=0.01)
    assert float(kept.mean()) == pytest.approx(1, abs=0.01)
    rows = torch.randn(1, 5, 2000)
    assert torch.equal(readout.scores(rows), readout.scores(rows))  # none where none is asked for
    assert not torch.equal(readout.scores(rows, 1), readout.scores(rows, 2))


@pytest.mark.parametrize("arch", ["alexnet", "resnet18"])
def test_colours_are_learnt_on_frozen_convolutions(arch, splits_of_colours):
    network = build_network(arch, "rgb", 64, width=24, generator=torch.Generator().manual_seed(1))
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    (layer,) = QUICK(network, *splits_of_colours, Bench()).layers
    assert layer.top1 == 1.0
    assert layer.width == (256 if arch == "alexnet" else 512)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), name


def test_it_drops_while_it_learns_and_nothing_while_it_is_tested(
    planted, splits_of_colours, monkeypatch: pytest.MonkeyPatch
):
    train, test = splits_of_colours
    learning, looking = [], []
    scores = MLPReadout.scores

    def noted(readout: MLPReadout, rows: list[Tensor], seed: int | None = None) -> Tensor:
        (learning if torch.is_grad_enabled() else looking).append(seed)
        return scores(readout, rows, seed)

    monkeypatch.setattr(MLPReadout, "scores", noted)
    replace(QUICK, epochs=2, batch=12)(planted, train, test, Bench())
    assert len(learning) == 2 * 3  # of 33 images, twice
    assert None not in learning
    assert len({*learning}) == len(learning)  # never the same numbers twice
    assert looking == [None, None]  # the test images and those held out


def test_impossible_dropout(planted, splits_of_colours):
    with pytest.raises(UsageError, match="--dropout 1: use"):
        replace(QUICK, dropout=1.0)(planted, *splits_of_colours, Bench())
