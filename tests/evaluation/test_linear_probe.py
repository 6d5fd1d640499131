from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.candidates import Candidate
from deepcluster.evaluation.labelled_images import LabelledImages, split
from deepcluster.evaluation.linear_probe import LinearProbe, chosen_layers
from deepcluster.networks import Network, build_network
from deepcluster.runtime.errors import DataError, UsageError

QUICK = LinearProbe(epochs=6, batch=8, steps=(1.0, 10.0), decays=(1e-6,), watch=2)


@pytest.fixture(scope="module")
def alexnet() -> Network:
    return build_network("alexnet", "rgb", 64, width=8, generator=torch.Generator().manual_seed(1))


def test_planted_features_are_read_without_a_mistake(planted, splits_of_colours):
    train, test = splits_of_colours
    result = replace(QUICK, layers=("seeing",), ten_crops=True)(planted, train, test, Bench())
    (layer,) = result.layers
    assert layer.top1 == layer.top5 == layer.ten_crops_top1 == 1.0
    assert (result.trained_on, result.chosen_on, result.tested_on) == (33, 3, 18)


def test_a_blind_layer_is_no_better_than_chance(planted, splits_of_colours):
    train, test = splits_of_colours
    result = replace(QUICK, layers=("seeing", "blind"))(planted, train, test, Bench())
    by_layer = result.top1()
    assert by_layer["seeing"] == 1.0
    assert by_layer["blind"] == pytest.approx(1 / 3)
    assert result.layers[1].top5 == 1.0  # among three classes five guesses are always right


def test_nothing_of_the_network_changes(alexnet, splits_of_colours):
    train, test = splits_of_colours
    alexnet.train()
    alexnet.trunk.convnet.convolutions.conv1.eval()
    before = {name: tensor.clone() for name, tensor in alexnet.state_dict().items()}
    modes = [module.training for module in alexnet.modules()]
    assert any("running_mean" in name for name in before)
    replace(QUICK, epochs=1)(alexnet, train, test, Bench())
    for name, tensor in alexnet.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert [module.training for module in alexnet.modules()] == modes
    assert all(parameter.grad is None for parameter in alexnet.parameters())


def test_layers_probed_together_are_those_probed_alone(alexnet, splits_of_colours):
    train, test = splits_of_colours
    quick = replace(QUICK, epochs=2)
    together = quick(alexnet, train, test, Bench()).layers
    assert [layer.layer for layer in together] == [f"conv{number}" for number in range(1, 6)]
    for layer in (together[0], together[4]):
        (alone,) = replace(quick, layers=(layer.layer,))(alexnet, train, test, Bench()).layers
        assert alone == layer


def test_the_same_seed_gives_the_same_figures(alexnet, splits_of_colours):
    train, test = splits_of_colours
    quick = replace(QUICK, epochs=1, layers=("conv3",))
    first, second = (quick(alexnet, train, test, Bench()).layers for _ in range(2))
    assert first == second


def test_what_was_chosen_elsewhere_is_tested(alexnet, splits_of_colours):
    train, test = splits_of_colours
    probe = replace(QUICK, epochs=2, steps=(1e-9, 10.0), layers=("conv1", "conv2"))
    own = probe(alexnet, train, test, Bench())
    other = {
        name: Candidate(1e-9 if choice.step == 10.0 else 10.0, choice.decay)
        for name, choice in own.choices().items()
    }
    given = probe(alexnet, train, test, Bench(), choices=other)
    assert given.choices() == other
    for mine, theirs in zip(given.layers, own.layers, strict=True):
        assert mine.candidates == theirs.candidates
        held = {one["step"]: one["held_out_top1"] for one in mine.candidates}
        assert (mine.held_out_top1, theirs.held_out_top1) == (held[mine.step], held[theirs.step])
        assert mine.held_out_top1 <= theirs.held_out_top1
        alone = replace(probe, steps=(mine.step,), layers=(mine.layer,))
        (single,) = alone(alexnet, train, test, Bench()).layers
        assert (single.top1, single.top5) == (mine.top1, mine.top5)


def test_test_labels_change_no_choice(alexnet, splits_of_colours):
    train, test = splits_of_colours
    turned = replace(test, classes=(test.classes + 1) % 3)
    quick = replace(QUICK, epochs=3, layers=("conv2",))
    (honest,), (other,) = (quick(alexnet, train, t, Bench()).layers for t in (test, turned))
    assert (other.step, other.decay, other.held_out_top1) == (
        honest.step,
        honest.decay,
        honest.held_out_top1,
    )
    assert other.candidates == honest.candidates
    assert other.top1 < honest.top1


def test_the_last_epoch_is_reported_and_the_best_on_test_beside_it(planted, splits_of_colours):
    train, test = splits_of_colours
    # So large a constant step that the accuracy jumps from epoch to epoch.
    rough = LinearProbe(
        epochs=6, batch=4, steps=(3000.0,), decays=(0.0,), schedule="constant", watch=1,
        momentum=0.0, layers=("seeing",),
    )  # fmt: skip
    wrong = replace(train, classes=np.random.default_rng(0).permutation(train.classes))
    (layer,) = rough(planted, wrong, test, Bench()).layers
    (shorter,) = replace(rough, epochs=layer.best_on_test_epoch)(
        planted, wrong, test, Bench()
    ).layers
    assert layer.best_on_test_top1 >= layer.top1
    assert shorter.top1 == layer.best_on_test_top1


def test_retraining_uses_every_image(planted, splits_of_colours):
    train, test = splits_of_colours
    result = replace(QUICK, layers=("seeing",), retrain=True)(planted, train, test, Bench())
    assert (result.trained_on, result.chosen_on) == (36, 3)
    assert result.layers[0].top1 == 1.0


@pytest.mark.parametrize("scaling", ["feature", "none"])
def test_other_scalings(planted, splits_of_colours, scaling):
    train, test = splits_of_colours
    settings = replace(QUICK, layers=("seeing",), scaling=scaling)
    if scaling == "none":
        settings = replace(settings, steps=(0.01,))
    assert settings(planted, train, test, Bench()).layers[0].top1 == 1.0


def test_the_scale_of_the_features_does_not_matter(planted, splits_of_colours):
    train, test = splits_of_colours
    quick = replace(QUICK, epochs=1, layers=("seeing",))
    (before,) = quick(planted, train, test, Bench()).layers
    with torch.no_grad():
        planted.trunk.convnet.seeing[0].weight *= 1000
    (after,) = quick(planted, train, test, Bench()).layers
    assert before == after


def test_of_every_class_some_images_are_held_out(splits_of_colours):
    train, _ = splits_of_colours
    kept, held = split(train, 0.25, seed=0)
    assert sorted([*kept, *held]) == list(range(36))
    assert np.bincount(train.classes[held]).tolist() == [3, 3, 3]
    assert not np.array_equal(held, split(train, 0.25, seed=1)[1])
    assert np.bincount(train.classes[split(train, 0.001, 0)[1]]).tolist() == [1, 1, 1]
    assert np.bincount(train.classes[split(train, 0.999, 0)[0]]).tolist() == [1, 1, 1]


def test_bad_data(planted, splits_of_colours):
    train, test = splits_of_colours
    renamed = replace(test, names=["blue", "green", "rot"], place="elsewhere/val")
    with pytest.raises(DataError, match=r"classes differ: 'red' is in .*train and not in .*val"):
        QUICK(planted, train, renamed, Bench())
    few = replace(train, classes=np.where(np.arange(36) == 0, 0, 1 + np.arange(36) % 2))
    with pytest.raises(DataError, match=r"class 'blue' has 1 image in .*; it needs at least 2"):
        QUICK(planted, few, test, Bench())


def test_a_layer_that_does_not_exist(alexnet: Network, splits_of_colours: list[LabelledImages]):
    train, test = splits_of_colours
    with pytest.raises(UsageError, match="no layer is called 'conv9'; there are conv1, conv2"):
        replace(QUICK, layers=("conv9",))(alexnet, train, test, Bench())
    assert chosen_layers(alexnet, ("fc6", "conv2")) == ["conv2", "fc6"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"epochs": 0}, "--epochs 0: use at least 1"),
        ({"steps": ()}, "--steps"),
        ({"decays": (-1.0,)}, "--decays"),
        ({"held_out": 1.0}, "--held-out 1.0: use a share"),
    ],
)
def test_impossible_settings(planted, splits_of_colours, change, sentence):
    with pytest.raises(UsageError, match=sentence):
        replace(QUICK, layers=("seeing",), **change)(planted, *splits_of_colours, Bench())
