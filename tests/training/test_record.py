"""Warnings that the figures of an epoch give rise to."""

from __future__ import annotations

import math

import pytest

from deepcluster.runtime.errors import HeadIsGuessing
from deepcluster.training.record import about_training


@pytest.mark.parametrize(
    ("kind", "advice"), [("groups", "a smaller --k or --batch"), ("classes", "a smaller --batch")]
)
def test_a_head_that_guesses_for_three_epochs_is_said_to(kind, advice: str):
    guess = math.log(6)
    before = [{"loss": guess, "ln_k": guess}] * 2
    with pytest.warns(HeadIsGuessing, match=f"among 6 {kind} .*step, {advice}, or more images"):
        assert about_training(guess, 6, before, kind) == {"loss": guess, "ln_k": guess}
    about_training(guess, 6, before[:1], kind)  # not after two: warnings are errors here
    about_training(0.9 * guess, 6, before, kind)
