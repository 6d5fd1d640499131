"""Tuning a baseline: what is tried of a row's candidates, and which of them is taken."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from deepcluster.evaluation.probe import Choices
from deepcluster.settings import Run
from deepcluster.studies.parts import slug
from deepcluster.studies.study import Row


class Trial(NamedTuple):
    """What a candidate reached on images that it has not learnt from."""

    run: Run
    score: float
    """Mean over the layers of the probe's accuracy."""
    choices: Choices | None
    """Step and decay that the probe chose for each layer."""


def choice(run: Run) -> str:
    """What candidates differ in."""
    training = run.training
    return f"step {training.step:g}, decay {training.weight_decay:g}, {run.epochs} epochs"


def trial_name(row: Row, number: int) -> str:
    """What the trial of a row's candidate is called, as a row of its own."""
    return f"{row.name} trial {number}"


def held_out_part(trial: str) -> str:
    """The part in which the score of a trial of this name is kept."""
    return f"{slug(trial)}-held-out"


def tuned_as(row: Row, other: Row) -> Row:
    """The row with the choice of another that is settled."""
    run = (
        replace(other.run, network=row.run.network, pixels=row.run.pixels)
        if other.adopted
        else row.candidates[other.candidates.index(other.run)]
    )
    note = f"{choice(run)}, as {other.name}; its probes' too"
    return replace(row, run=run, choices=other.choices).noted(note)


def tuned_by(row: Row, trials: Sequence[Trial]) -> Row:
    """The row with the best of its candidates."""
    best = max(trials, key=lambda trial: trial.score)
    note = f"best of {len(trials)} on held-out images ({100 * best.score:.1f}): {choice(best.run)}"
    return replace(row, run=best.run, choices=best.choices).noted(note)


def log_of(trials: Sequence[Trial]) -> str:
    """All trials, as JSON."""
    lines = [{"settings": choice(one.run), "held_out_top1": one.score} for one in trials]
    return json.dumps(lines, indent=2) + "\n"
