from __future__ import annotations

import numpy as np
import pytest
import torch
from kernel_child import says_equal
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import (
    Candidate,
    LinearReadout,
    StackedSGD,
    grid,
    loss_of,
    step_factor,
)
from deepcluster.evaluation.probe import fit_epoch
from deepcluster.runtime.world import World

CPU = torch.device("cpu")


def rows_and_classes(
    count: int, width: int = 20, classes: int = 5, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Overlapping clouds: no classifier gets all of them right."""
    centres = np.random.default_rng(99).normal(size=(classes, width))
    randomness = np.random.default_rng(seed)
    labels = randomness.integers(0, classes, count)
    rows = centres[labels] + randomness.normal(0, 2.2, (count, width))
    return torch.from_numpy(rows).float() / width**0.5, torch.from_numpy(labels)


def fitted(
    rows: Tensor, labels: Tensor, candidates: list[Candidate], epochs: int, batch: int = 50
) -> LinearReadout:
    readout = LinearReadout(len(candidates), int(labels.max()) + 1, [rows.shape[1]], CPU)
    optimizer = StackedSGD(readout.parameters, [candidates], momentum=0.9)
    steps = len(rows) // batch
    for epoch in range(epochs):
        order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(epoch))
        batches = [(rows[None, part], labels[part], batch) for part in order.split(batch)]

        def factor_at(step: int, epoch: int = epoch) -> float:
            return step_factor("cosine", (epoch + step / steps) / epochs)

        fit_epoch(readout, optimizer, batches, Bench(), factor_at)
    return readout


@pytest.mark.parametrize("decay", [1e-2, 1e-3, 1e-5])
def test_a_probe_is_as_good_as_scikit_learns_logistic_regression(decay: float):
    rows, labels = rows_and_classes(1000)
    test, truth = rows_and_classes(4000, seed=1)
    readout = fitted(rows, labels, [Candidate(1.0, decay)], epochs=60)
    with torch.no_grad():
        guesses = readout.scores(test[None])[0, :, 0].argmax(dim=1)
    ours = float((guesses == truth).float().mean())
    reference = LogisticRegression(C=1 / (decay * len(rows)), max_iter=2000, tol=1e-8)
    reference.fit(rows.numpy(), labels.numpy())
    theirs = reference.score(test.numpy(), truth.numpy())
    assert 0.4 < theirs < 0.95  # else there would be nothing to compare
    assert abs(ours - theirs) < 0.01
    if decay >= 1e-3:  # so convex that the weights themselves must agree
        weights = readout.parameters[0][0][0].detach().numpy()
        assert np.abs(weights - reference.coef_).max() < 0.05 * np.abs(reference.coef_).max()


def test_candidates_trained_together_are_those_trained_alone():
    rows, labels = rows_and_classes(300)
    candidates = grid([0.3, 3.0], [0.0, 1e-2])
    together = fitted(rows, labels, candidates, epochs=3)
    for place, candidate in enumerate(candidates):
        alone = fitted(rows, labels, [candidate], epochs=3)
        for ours, theirs in zip(together.parameters[0], alone.parameters[0], strict=True):
            assert torch.allclose(ours[place], theirs[0], rtol=1e-4, atol=1e-5)
    weights = together.parameters[0][0].detach()
    assert (weights[0] - weights[1]).abs().max() > 1e-3  # they do differ
    assert (weights[0] - weights[2]).abs().max() > 1e-3


@pytest.mark.parametrize("in_one", [False, True])
def test_layers_of_any_widths_learn_as_each_would_alone(in_one: bool):
    rows, labels = rows_and_classes(64)
    features, candidates = [rows, rows[:, :7]], [grid([0.7], [0.03, 0.0]), grid([0.2, 3.0], [0.1])]
    parts = [
        (features, candidates),
        *(([f], [c]) for f, c in zip(features, candidates, strict=True)),
    ]
    learnt = []
    for some, theirs in parts:
        readout = LinearReadout(2, 5, [one.shape[1] for one in some], CPU, in_one=in_one)
        assert len(readout.parameters) == (1 if in_one else len(some))
        optimizer = StackedSGD(readout.parameters, theirs, momentum=0.9)
        for _ in range(5):
            loss_of(readout.scores(some), labels, len(rows)).backward()
            optimizer.step(0.5, World())
        learnt.append(readout.scores(some).detach())
    together, first, second = learnt
    assert together.shape == (2, 64, 2, 5)
    assert torch.allclose(together[0], first[0], atol=1e-5)
    assert torch.allclose(together[1], second[0], atol=1e-5)
    assert (together[0] - together[1]).abs().max() > 0.01
    assert (together[:, :, 0] - together[:, :, 1]).abs().max() > 0.01


def test_a_step_is_torchs_own():
    rows, labels = rows_and_classes(64)
    candidate = Candidate(0.7, 0.03)
    readout = LinearReadout(1, 5, [20], CPU)
    ours = StackedSGD(readout.parameters, [[candidate]], momentum=0.9)
    weight = torch.zeros(5, 20, requires_grad=True)
    bias = torch.zeros(5, requires_grad=True)
    theirs = torch.optim.SGD(
        [{"params": [weight], "weight_decay": 0.03}, {"params": [bias]}], lr=0.7, momentum=0.9
    )
    for _ in range(5):
        loss_of(readout.scores(rows[None]), labels, len(rows)).backward()
        ours.step(1.0, World())
        theirs.zero_grad()
        F.cross_entropy(F.linear(rows, weight, bias), labels).backward()
        theirs.step()
    for learnt, expected in zip(readout.parameters[0], (weight, bias), strict=True):
        assert torch.allclose(learnt[0], expected, atol=1e-6)


def test_schedules():
    assert step_factor("cosine", 0) == 1
    assert step_factor("cosine", 0.5) == pytest.approx(0.5)
    assert step_factor("cosine", 1) == pytest.approx(0)
    assert [step_factor("steps", at) for at in (0, 0.4, 0.7)] == pytest.approx([1, 0.1, 0.01])
    assert step_factor("constant", 0.9) == 1


def test_low_precision_weights_are_copies_of_full_ones():
    rows, labels = rows_and_classes(64)
    readout = LinearReadout(1, 5, [20], CPU, torch.bfloat16)
    optimizer = StackedSGD(readout.parameters, [[Candidate(1e-4, 0.0)]], momentum=0.0)
    for _ in range(2000):  # steps so small that bfloat16 alone would lose most of them
        loss_of(readout.scores(rows[None]), labels, len(rows)).backward()
        optimizer.step(1.0, World())
    full = LinearReadout(1, 5, [20], CPU)
    optimizer = StackedSGD(full.parameters, [[Candidate(1e-4, 0.0)]], momentum=0.0)
    for _ in range(2000):
        loss_of(full.scores(rows[None]), labels, len(rows)).backward()
        optimizer.step(1.0, World())
    (low, _), (exact, _) = readout.parameters[0], full.parameters[0]
    assert (low.float() - exact).abs().max() < 0.03 * exact.abs().max()


CHECK = """
import torch
from deepcluster.evaluation.candidates import move
from deepcluster.evaluation.sgd_kernel import move_by_kernel
device, source = torch.device("{device}"), torch.Generator().manual_seed(0)
for low in (torch.float32, torch.bfloat16):
    shape = (6, 5, 1100)
    weight, velocity = (torch.randn(shape, generator=source).to(device) for _ in range(2))
    gradient = torch.randn(shape, generator=source).to(device, low)
    steps, decays = (torch.rand(6, generator=source).to(device) for _ in range(2))
    results = []
    for how in (move, move_by_kernel):
        own, speed = weight.clone(), velocity.clone()
        copy = own if low == torch.float32 else torch.empty(shape, dtype=low, device=device)
        how(own, speed, gradient, steps, decays, 0.9, copy)
        results.append((own, speed, copy))
    for ours, theirs in zip(*results):
        assert ours.dtype == theirs.dtype
        near = 1e-2 if ours.dtype == torch.bfloat16 else 1e-5
        assert torch.allclose(ours.float(), theirs.float(), rtol=near, atol=1e-5)
    assert not torch.equal(results[0][0], weight)
print("equal")
"""


def agrees(device: str, **environment: str) -> None:
    says_equal("-c", CHECK.format(device=device), **environment)


def test_the_kernel_agrees_with_the_plain_version_under_the_interpreter():
    pytest.importorskip("triton", reason="Triton is not installed")
    agrees("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernel_agrees_with_the_plain_version_on_a_gpu():
    agrees("cuda")
