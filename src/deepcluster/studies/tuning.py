"""Tuning a baseline: what is tried of a row's candidates, and which of them is taken.

Candidates are all combinations of some steps, decays and numbers of epochs. Not all of them are
tried: from the middle of everything on, the best step is looked for, with that the best decay, and
with both the best number of epochs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from deepcluster.evaluation.candidates import Candidate
from deepcluster.evaluation.probe import Choices
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import Run
from deepcluster.studies.image_lists import refuse_without_files, write_kept_part
from deepcluster.studies.loans import borrow_trial
from deepcluster.studies.parts import slug
from deepcluster.studies.row_networks import RowNetworks, described, training_part
from deepcluster.studies.study import Row
from deepcluster.studies.terms import middle_of

_VARIED: dict[str, Callable[[Run], float]] = {
    "step": lambda run: run.training.step,
    "decay": lambda run: run.training.weight_decay,
    "number of epochs": lambda run: run.epochs,
}
"""What candidates differ in, in the order in which it is tuned."""


class _Trial(NamedTuple):
    """What a candidate reached on images that it has not learnt from."""

    run: Run
    score: float
    """Mean over the layers of the probe's accuracy."""
    choices: Choices | None
    """Step and decay that the probe chose for each layer."""


@dataclass(frozen=True)
class Tuning:
    """Trials of candidates, each a row of its own whose network is not kept."""

    networks: RowNetworks

    def settled(self, row: Row, before: Sequence[Row]) -> Row:
        """The row with the best of its candidates, by images that no trial has learnt from."""
        if len(row.candidates) < 2:
            return row
        for other in before:
            if other.name == row.tuned_like and not self._tried(row):
                return _tuned_as(row, other)
        parts, tried = self.networks.parts, dict[int, _Trial]()
        count = 1 + sum(len(_values(row.candidates, what)) - 1 for what in _VARIED)
        # Those that are there count, whoever wanted them: a study of an older version tried all.
        made = self._made(row)
        parts.bench.world.wait()  # all have looked before the first adds to them
        tried |= {place: self._trial(row, place) for place in made}
        best = _middle(row.candidates)
        for what in _VARIED:  # one thing after another, the others as they are best so far
            line = _line(row.candidates, best, what)
            for place in line:
                if place not in tried:
                    choice = _choice(row.candidates[place])
                    parts.bench.display.say(f"  trial {len(tried) + 1} of {count}: {choice}")
                    tried[place] = self._trial(row, place)
            best = max(line, key=lambda place: tried[place].score)
        trials = [tried[place] for place in sorted(tried)]  # whatever came first
        settled = _tuned_by(row, trials)
        parts.bench.display.say(f"  {settled.note}")
        if parts.bench.world.leads:
            RunFolder(parts.study).write(f"trials/{slug(row.name)}.json", _log_of(trials))
        return settled

    def refuse_impossible(self, row: Row, rows: Sequence[Row]) -> None:
        """Raise where the row will have trials, and there are no files to list for them."""
        follows = row.tuned_like in {other.name for other in rows} or self._tried(row)
        if len(row.candidates) > 1 and not self.networks.parts.others and not follows:
            where = self.networks.terms.data[0].train
            refuse_without_files(where, f"tuning {row.name}", "; or give --no-tune")

    def _tried(self, row: Row) -> bool:
        """Whether the row has been tuned by trials of its own."""
        return bool(self._made(row))

    def _made(self, row: Row) -> list[int]:
        """The places of the candidates that have been tried here."""
        parts, places = self.networks.parts, range(len(row.candidates))
        return [place for place in places if parts.place(_part(_named(row, place))).exists()]

    def _trial(self, row: Row, place: int) -> _Trial:
        """What the candidate at this place comes to."""
        run = row.candidates[place]
        trial = Row(_named(row, place), replace(run, seed=self._seed(row, place)))
        return _Trial(run, *self._held_out(trial))

    def _seed(self, row: Row, place: int) -> int:
        """Of a trial: the one that it was made with, or others of the row, whatever is asked now.

        A choice is made once: other seeds that are asked for later take it as it is.
        """
        parts = self.networks.parts
        for one in (place, *self._made(row)):
            with suppress(OSError, ValueError, LookupError, TypeError):  # who reads it does it anew
                part = json.loads(parts.place(_part(_named(row, one))).read_text())
                return int(part["settings"]["seed"])
        return self.networks.terms.seeds[0]

    def _held_out(self, trial: Row) -> tuple[float, Choices | None]:
        """Mean over the layers of the probe's accuracy on the part held out, and what it chose.

        The trial learns from the same part of the images that the probe learns from: unlike the
        network that comes of the choice, it is a stranger to the others.
        """
        networks, parts, terms = self.networks, self.networks.parts, self.networks.terms
        run, probe, data, bench = trial.run, terms.probe, terms.data[0], parts.bench
        subset = parts.study / "trials" / f"{slug(data.name)}-kept.csv"

        def by_the_probe() -> dict[str, Any]:
            images = networks.opened(data.train, run)
            if bench.world.leads:
                write_kept_part(subset, data.train, images, probe.held_out, probe.seed)
                self._forget_deleted(trial)
            bench.world.wait()
            row = replace(trial, images=subset)
            networks.trained(row, run)
            test = networks.opened(data.test, run)
            result = probe(networks.subject(row, run).network, images, test, bench)
            # What the probe says of the test images is not kept: nothing may be chosen by it.
            held_out = {layer.layer: layer.held_out_top1 for layer in result.layers}
            choices = result.choices()
            return {"held_out": held_out, "choices": choices, "images": images.fingerprint}

        settings = {f"probe.{name}": value for name, value in asdict(probe).items()}
        wanted = {**described(run), **settings}
        name = _part(trial.name)
        if parts.others:
            images = networks.opened(data.train, run)
            if bench.world.leads:
                borrow_trial(parts, name, wanted, images.fingerprint)
            bench.world.wait()
        part = parts.once(name, wanted, by_the_probe, lambda done: {data.train: done.get("images")})
        if bench.world.leads:  # only the figure is wanted
            shutil.rmtree(networks.folder(trial, run.seed).path, ignore_errors=True)
        found = part["held_out"]
        choices = part.get("choices")  # of an older version there are none
        if choices is not None:
            choices = {layer: Candidate(*choice) for layer, choice in choices.items()}
        return sum(found.values()) / len(found), choices

    def _forget_deleted(self, trial: Row) -> None:
        """Let a trial be trained anew whose network was deleted when it had been judged."""
        folder = self.networks.folder(trial, trial.run.seed).path
        training = self.networks.parts.place(training_part(trial, trial.run.seed))
        if training.exists() and not (folder / "model.safetensors").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            training.unlink()


def _choice(run: Run) -> str:
    """What candidates differ in."""
    training = run.training
    return f"step {training.step:g}, decay {training.weight_decay:g}, {run.epochs} epochs"


def _tuned_as(row: Row, other: Row) -> Row:
    """The row with the choice of another that is settled."""
    run = (
        replace(other.run, network=row.run.network, pixels=row.run.pixels)
        if other.adopted
        else row.candidates[other.candidates.index(other.run)]
    )
    note = f"{_choice(run)}, as {other.name}"
    if other.choices is not None:  # an adopted run has none
        note += "; its probes' too"
    return replace(row, run=run, choices=other.choices).noted(note)


def _values(candidates: Sequence[Run], what: str) -> list[float]:
    """What the candidates have of this, the smallest first."""
    return sorted({_VARIED[what](run) for run in candidates})


def _middle(candidates: Sequence[Run]) -> int:
    """The place of the candidate with the middle of everything, of two the smaller."""
    middle = [middle_of(_values(candidates, what)) for what in _VARIED]
    return [[of(run) for of in _VARIED.values()] for run in candidates].index(middle)


def _line(candidates: Sequence[Run], place: int, varied: str) -> list[int]:
    """The places of those that differ from the one at this place in one thing at most."""
    same = [of for what, of in _VARIED.items() if what != varied]
    here = candidates[place]
    return [
        other for other, run in enumerate(candidates) if all(of(run) == of(here) for of in same)
    ]


def _named(row: Row, place: int) -> str:
    """The name of a trial: by its place among the candidates, whichever are tried."""
    return f"{row.name} trial {place + 1}"


def _part(trial: str) -> str:
    """The name of the part that has what a trial came to."""
    return f"{slug(trial)}-held-out"


def _tuned_by(row: Row, trials: Sequence[_Trial]) -> Row:
    """The row with the best of its candidates."""
    best = max(trials, key=lambda trial: trial.score)
    note = f"best of {len(trials)} on held-out images ({100 * best.score:.1f}): {_choice(best.run)}"
    if edges := _edges(best.run, [trial.run for trial in trials]):
        note += f" ({' and '.join(edges)} of those tried)"
    return replace(row, run=best.run, choices=best.choices).noted(note)


def _edges(best: Run, tried: Sequence[Run]) -> list[str]:
    """In what the best lies at the edge of what was tried, so that beyond may be better."""
    found = []
    for what, of in _VARIED.items():
        values, own = _values(tried, what), of(best)
        if len(values) > 1 and own in (values[0], values[-1]):
            found.append(f"the {'smallest' if own == values[0] else 'largest'} {what}")
    return found


def _log_of(trials: Sequence[_Trial]) -> str:
    """All trials, as JSON."""
    lines = [{"settings": _choice(one.run), "held_out_top1": one.score} for one in trials]
    return json.dumps(lines, indent=2) + "\n"
