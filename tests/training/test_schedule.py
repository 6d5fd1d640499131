"""The step size over a run."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.optim import SGD
from torch.optim.lr_scheduler import CosineAnnealingLR

from deepcluster.training.optimizers import Optimization
from deepcluster.training.schedule import epochs_that_fit, part_of_schedule, step_factor


def one_weight() -> SGD:
    return SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


def journal_of(seconds: list[float], minutes: float | None, epochs: int) -> list[dict[str, Any]]:
    """The journal of epochs that took so long, each with its part of the schedule."""
    lines: list[dict[str, Any]] = []
    for duration in seconds:
        part = part_of_schedule(lines, epochs, minutes)
        lines.append({"seconds": {"look": duration / 2, "learn": duration / 2}, "schedule": part})
    return lines


def test_the_papers_step_is_constant():
    for share in (0.0, 0.3, 1.0):
        assert step_factor("constant", 0.0, epochs_done=3.0, share=share) == 1.0


def test_cosine_steps_are_those_of_torch():
    epochs, steps = 3, 4
    reference = one_weight()
    scheduler = CosineAnnealingLR(reference, T_max=epochs * steps)
    trunk, head = one_weight(), one_weight()
    optimization = Optimization(step=1.0, schedule="cosine", head_step=2.5)
    lines: list[dict[str, Any]] = []
    for epoch in range(epochs):
        begin, end = part_of_schedule(lines, epochs, None)
        lines.append({"seconds": {}, "schedule": [begin, end]})
        for step in range(steps):
            share = begin + (end - begin) * step / steps
            optimization.set_step(trunk, head, epoch + step / steps, share)
            expected = reference.param_groups[0]["lr"]
            assert trunk.param_groups[0]["lr"] == pytest.approx(expected)
            assert head.param_groups[0]["lr"] == pytest.approx(2.5 * expected)
            reference.step()
            scheduler.step()
    assert lines[-1]["schedule"][1] == pytest.approx(1.0)


def test_a_late_fall_stays_at_first_and_then_is_the_whole_cosine():
    def late(share: float) -> float:
        return step_factor("cosine", 0.0, epochs_done=9.0, share=share, fall=0.25)

    assert [late(share) for share in (0.0, 0.5, 0.75)] == [1.0, 1.0, 1.0]
    for share in (0.0, 0.3, 0.5, 0.9, 1.0):
        whole = step_factor("cosine", 0.0, epochs_done=9.0, share=share)
        assert late(0.75 + share / 4) == pytest.approx(whole, abs=1e-12)
    assert step_factor("constant", 0.0, epochs_done=9.0, share=0.9, fall=0.25) == 1.0


def test_a_fall_over_all_of_the_run_is_the_cosine_to_the_last_bit():
    for part in range(500):
        share = part / 499
        cosine = (1 + math.cos(math.pi * share)) / 2
        assert step_factor("cosine", 0.0, epochs_done=9.0, share=share) == cosine


def test_the_step_of_a_head_that_lives_one_epoch_does_not_fall():
    trunk, head = one_weight(), one_weight()
    optimization = Optimization(step=1.0, schedule="cosine", head_step=2.5, warmup=2.0)
    optimization.set_step(trunk, head, 8.0, 0.5, head_stays=False)
    assert trunk.param_groups[0]["lr"] == pytest.approx(0.5)
    assert head.param_groups[0]["lr"] == pytest.approx(2.5)
    optimization.set_step(trunk, head, 1.0, 0.0, head_stays=False)  # but it rises
    assert head.param_groups[0]["lr"] == pytest.approx(1.25)


def test_the_warm_up_rises_evenly_and_then_leaves_the_schedule_alone():
    rising = [step_factor("constant", 2.0, epochs_done=d, share=0.0) for d in (0, 0.5, 1, 2, 5)]
    assert rising == [0, 0.25, 0.5, 1, 1]
    assert step_factor("cosine", 2.0, epochs_done=1.0, share=0.5) == pytest.approx(0.25)


def test_with_minutes_the_schedule_ends_with_the_last_epoch_that_fits():
    lines = journal_of([10.0], minutes=1.0, epochs=500)
    while epochs_that_fit(lines, 1.0):
        lines = journal_of([10.0] * (len(lines) + 1), minutes=1.0, epochs=500)
    assert len(lines) == 5  # 50 seconds, and a closing pass of up to five
    assert lines[-1]["schedule"][1] == pytest.approx(1.0)
    begins = [line["schedule"][0] for line in lines]
    assert begins == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])


def test_a_first_epoch_that_was_slow_misleads_one_other_and_no_more():
    lines = journal_of([20.0, *[5.0] * 7], minutes=1.0, epochs=500)
    assert epochs_that_fit(lines, 1.0) == 0
    begins, ends = zip(*(line["schedule"] for line in lines), strict=True)
    assert begins[2:] == pytest.approx([(25 + 5 * n) / 55 for n in range(6)])  # of 55 seconds
    assert ends[2:] == pytest.approx([*begins[3:], 1.0])


def test_fewer_epochs_than_fit_decide():
    lines = journal_of([1.0] * 4, minutes=100.0, epochs=4)
    assert [line["schedule"][1] for line in lines] == pytest.approx([0.25, 0.5, 0.75, 1.0])


def test_the_time_for_a_closing_pass_is_kept():
    line = {"seconds": {"learn": 10.0}}
    assert epochs_that_fit([line], 25.1 / 60) == 1  # an epoch of 10 and half as much after it
    assert epochs_that_fit([line], 24.9 / 60) == 0
    assert epochs_that_fit([], 0.1) > 1000


def test_the_half_way_step_is_half():
    assert step_factor("cosine", 0.0, epochs_done=9.0, share=0.5) == pytest.approx(0.5)
    assert math.isclose(step_factor("cosine", 0.0, epochs_done=9.0, share=1.0), 0.0, abs_tol=1e-12)
