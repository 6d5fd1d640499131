"""One epoch of learning."""

import math
from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from deepcluster.images.crops import normalize
from deepcluster.runtime import interruption
from deepcluster.runtime.errors import NumericsError, WorldError
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.world import World
from deepcluster.training.epoch import EpochProgress, train_epoch
from deepcluster.training.optimizers import Optimization, momenta

OPTIMIZATION = Optimization(step=0.02, batch=8)


def both(network):
    return OPTIMIZATION.for_trunk(network), OPTIMIZATION.for_head(network)


def trained(network, batches, **more):
    more = {"progress": EpochProgress(), "dropout_stream": (0, 0), **more}
    optimizers = more.pop("optimizers", None) or both(network)
    return train_epoch(network, batches, optimizers, World(), **more)


def weights_of(network):
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def equal(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_loss_falls_from_that_of_guessing(tiny, stripes):
    network = tiny()
    quick = Optimization(step=0.2)
    optimizers = quick.for_trunk(network), quick.for_head(network)
    first = trained(network, stripes(1), optimizers=optimizers).loss
    for _ in range(4):
        last = trained(network, stripes(10), optimizers=optimizers).loss
    assert first == pytest.approx(math.log(2), rel=0.1)
    assert last < 0.5 * first


def test_progress_counts_steps_images_and_losses(tiny, stripes):
    counts = []
    progress = trained(tiny(), stripes(3), after_step=counts.append)
    assert (progress.step, progress.images) == (3, 24)
    assert counts == [8, 8, 8]
    assert progress.loss == pytest.approx(progress.loss_sum / 24)


def test_progress_counts_the_images_whose_label_was_said(tiny, stripes):
    network = tiny(dropout=0.0)
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor([0.0, 1.0]))  # says 1 whatever it sees
    (batch,) = stripes(1)
    labels = torch.tensor([1, 1, 1, 0, 0, 1, 1, 0])
    assert trained(network, [replace(batch, labels=labels)]).right == 5


def test_each_step_is_announced_before_it_is_taken(tiny, stripes):
    network = tiny()
    optimizers = both(network)
    before, steps = weights_of(network), []

    def halt(step):
        steps.append(step)
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.0

    trained(network, stripes(3, first=1), optimizers=optimizers, before_step=halt)
    assert steps == [1, 2]
    assert all(torch.equal(before[name], weight) for name, weight in network.named_parameters())


def test_smoothing_spreads_the_label_as_torch_does(tiny, stripes):
    (batch,) = stripes(1)
    network = tiny(3, dropout=0.0).train()
    with torch.no_grad():
        network.head.bias.copy_(torch.tensor([0.0, 2.0, -1.0]))
        again = deepcopy(network)
        logits = network(normalize(batch.images)).double()
    probability = logits.softmax(dim=1).log()
    own = -probability.gather(1, batch.labels[:, None])[:, 0]
    expected = (0.7 * own - 0.3 * probability.mean(dim=1)).mean()
    loss = trained(again, [batch], smoothing=0.3).loss
    assert loss == pytest.approx(float(expected), rel=1e-5)
    assert abs(loss - float(own.mean())) > 0.01


def test_no_progress_has_no_loss():
    assert EpochProgress().loss == 0


def test_the_network_is_trained_in_training_mode(tiny, stripes):
    network = tiny().eval()
    trained(network, stripes(1))
    assert network.training


def test_a_weight_of_zero_is_an_image_left_out_of_the_loss(tiny, stripes):
    (batch,) = stripes(1)
    weights = torch.tensor([2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0])
    wrong = torch.cat([batch.labels[:4], 1 - batch.labels[4:]])
    one, other = tiny(), tiny()
    trained(one, [replace(batch, weights=weights)])
    trained(other, [replace(batch, weights=weights, labels=wrong)])
    assert equal(weights_of(one), weights_of(other))


def test_weights_of_two_double_loss_and_gradient(tiny, stripes):
    (batch,) = stripes(1)
    plain, doubled = tiny(), tiny()
    before = weights_of(plain)["head.bias"]
    loss = trained(plain, [batch]).loss
    assert trained(doubled, [replace(batch, weights=2 * batch.weights)]).loss == pytest.approx(
        2 * loss
    )
    moved = weights_of(plain)["head.bias"] - before
    torch.testing.assert_close(weights_of(doubled)["head.bias"] - before, 2 * moved)


def test_the_gradient_is_the_mean_over_the_batch(tiny, stripes):
    (batch,) = stripes(1)
    network = tiny(dropout=0.0)
    trained(network, [batch])
    head = network.head.bias.grad.clone()
    again = tiny(dropout=0.0)
    twice = replace(
        batch,
        images=batch.images.repeat(2, 1, 1, 1),
        labels=batch.labels.repeat(2),
        weights=batch.weights.repeat(2),
        total=16,
    )
    trained(again, [twice])
    torch.testing.assert_close(again.head.bias.grad, head, atol=1e-5, rtol=1e-3)


def test_a_loss_that_is_not_finite_stops_before_the_weights_move(tiny, stripes):
    network = tiny()
    optimizers = both(network)
    trained(network, stripes(2), optimizers=optimizers)
    parameters = {name: p.detach().clone() for name, p in network.named_parameters()}
    (batch,) = stripes(4, first=3)
    spoiled = replace(batch, weights=torch.tensor([torch.nan] + [1.0] * 7))
    saves = []
    with pytest.raises(NumericsError, match="no longer finite at step 3"):
        trained(
            network,
            [spoiled],
            optimizers=optimizers,
            progress=EpochProgress(3),
            save=saves.append,
        )
    assert all(torch.equal(p, parameters[name]) for name, p in network.named_parameters())
    assert saves == []


def test_gradients_that_another_process_spoiled_stop_before_the_weights_move(tiny, stripes):
    network = tiny()
    network.head.bias.register_hook(lambda gradient: gradient * torch.nan)
    parameters = [p.detach().clone() for p in network.parameters()]
    with pytest.raises(NumericsError, match="no longer finite"):
        trained(network, stripes(1))
    assert all(map(torch.equal, network.parameters(), parameters))


def test_dropout_does_not_depend_on_the_global_state(tiny, stripes):
    one, other = tiny(), tiny()
    torch.manual_seed(1)
    trained(one, stripes(2))
    torch.manual_seed(2)
    trained(other, stripes(2))
    assert equal(weights_of(one), weights_of(other))


def test_the_callers_random_state_is_untouched(tiny, stripes):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    trained(tiny(), stripes(2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("other", [(1, 0), (0, 1)])
def test_dropout_depends_on_seed_and_epoch(tiny, stripes, other):
    one, another = tiny(), tiny()
    trained(one, stripes(1), dropout_stream=(0, 0))
    trained(another, stripes(1), dropout_stream=other)
    assert not equal(weights_of(one), weights_of(another))


def test_dropout_depends_on_the_step(tiny, stripes):
    (batch,) = stripes(1)
    losses = {trained(tiny(), [replace(batch, step=step)]).loss for step in range(3)}
    assert len(losses) == 3


def test_an_epoch_in_two_parts_is_the_epoch_in_one(tiny, stripes):
    whole, parts = tiny(), tiny()
    expected = trained(whole, stripes(4))
    optimizers = both(parts)
    progress = trained(parts, stripes(2), optimizers=optimizers)
    progress = trained(parts, stripes(4, first=2), optimizers=optimizers, progress=progress)
    assert equal(weights_of(whole), weights_of(parts))
    assert progress == expected


def test_the_trunk_has_momentum_and_the_head_none(tiny, stripes):
    network = tiny()
    trunk, head = both(network)
    trained(network, stripes(2), optimizers=(trunk, head))
    assert len(momenta(trunk)) == len(list(network.trunk.parameters()))
    assert momenta(head) == {}


def test_the_head_takes_plain_steps(tiny, stripes):
    network = tiny(dropout=0.0)
    optimizers = both(network)
    trained(network, stripes(1), optimizers=optimizers)
    before = network.head.weight.detach().clone()
    trained(network, stripes(2, first=1), optimizers=optimizers)
    plain = before - 0.02 * (network.head.weight.grad + 1e-5 * before)
    torch.testing.assert_close(network.head.weight.detach(), plain)


@pytest.fixture
def ask(monkeypatch):
    """Asks the run to stop, as a signal does."""
    monkeypatch.setattr(interruption, "_asked", None)
    return lambda: monkeypatch.setattr(interruption, "_asked", interruption.TERMINATED)


def test_an_interruption_saves_once_after_the_step_under_way(tiny, stripes, ask):
    reference, network = tiny(), tiny()
    expected = trained(reference, stripes(2))
    saves = []

    def after_step(count):
        counts.append(count)
        if len(counts) == 2:
            ask()

    counts = []
    with pytest.raises(Interrupted) as stopped:
        trained(
            network,
            stripes(5),
            after_step=after_step,
            save=lambda p: saves.append((replace(p), weights_of(network))),
        )
    assert stopped.value.exit_code == 143
    ((progress, saved),) = saves
    assert progress == expected
    assert equal(saved, weights_of(reference))


def test_a_save_that_is_due_is_made_and_training_goes_on(tiny, stripes):
    due = iter([False, True, False])
    saves = []
    progress = trained(
        tiny(), stripes(3), due=lambda: next(due), save=lambda p: saves.append(replace(p))
    )
    assert saves == [trained(tiny(), stripes(2))]
    assert progress.step == 3


def test_what_was_just_saved_is_not_saved_again(tiny, stripes):
    def batches():
        yield from stripes(2)
        raise WorldError("another process ended")

    saves = []
    with pytest.raises(WorldError):
        trained(tiny(), batches(), due=lambda: True, save=lambda p: saves.append(p.step))
    assert saves == [1, 2]


def test_the_end_of_another_process_saves_what_was_done(tiny, stripes):
    def batches():
        yield from stripes(2)
        raise WorldError("another process ended")

    saves = []
    with pytest.raises(WorldError):
        trained(tiny(), batches(), save=lambda p: saves.append(p.step))
    assert saves == [2]


def test_an_end_before_any_new_step_leaves_the_save_before_as_it_is(tiny):
    def batches():
        raise WorldError("another process ended")
        yield

    saves = []
    with pytest.raises(WorldError):
        trained(tiny(), batches(), progress=EpochProgress(7, 1.0, 56), save=saves.append)
    assert saves == []
