"""When to stop: probe accuracy and agreement with labels as training goes on.

One run, judged on its way; the step is constant, as in the paper, so that a run can grow longer.
"""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from deepcluster.runtime.errors import UsageError
from deepcluster.studies.drawing import agreement_over_training, curve
from deepcluster.studies.study import Figured, Line, Results, Row, Section, Study
from deepcluster.studies.terms import Terms

STATIONS = 5


def rows(terms: Terms) -> list[Row]:
    """The same run after more and more epochs."""
    training = replace(terms.recipe.training, schedule="constant", fall=1.0)
    constant = replace(terms.recipe, training=training)
    return [
        Row(_name(0), constant, trained=False, begun=True),
        *(
            Row(_name(epochs), replace(constant, epochs=epochs), continues="growing")
            for epochs in _lengths(terms)
        ),
    ]


def _lengths(terms: Terms) -> list[int]:
    """After how many epochs the run is judged: ever longer, each twice the last, to the end."""
    return sorted({max(1, terms.recipe.epochs >> halved) for halved in range(STATIONS)})


def _name(epochs: int) -> str:
    return "1 epoch" if epochs == 1 else f"{epochs} epochs"


def sections(results: Results, terms: Terms) -> list[Section]:
    """Best layer on each data set, and agreement, after so many epochs."""
    columns = [f"best layer on {data.name}" for data in terms.data]
    columns += [f"mAP on {task.name}" for task in terms.tasks]
    lines = []
    for name in results.names:
        nmi = results.of(name)[0].nmi_labels
        accuracy = [results.best_layer(name, data.name) for data in terms.data]
        accuracy += results.transferred(name, [task.name for task in terms.tasks])
        note = _untrained(terms) if nmi is None else f"NMI with labels {nmi:.3f}"
        lines.append(Line(name, "saturates after 400 epochs", accuracy, note))
    return [Section("accuracy over training, %", columns, lines)]


def _untrained(terms: Terms) -> str:
    patches = terms.recipe.network.patches
    return "untrained, with first filters from patches" if patches else "untrained"


def figure(canvas: Figure, results: Results, terms: Terms) -> None:
    """Accuracy, and beside it agreement, over epochs."""
    canvas.set_size_inches(11, 4)
    quality, agreement = canvas.subplots(1, 2)
    lengths = [length for length in (0, *_lengths(terms)) if _name(length) in results.names]
    for data in terms.data:
        bests: list[Figured] = []
        for length in lengths:
            best = results.best_layer(_name(length), data.name)
            assert best is not None  # the row was run
            bests.append(best)
        curve(quality, lengths, bests, data.name)
    for task in terms.tasks:
        reached = [results.transferred(_name(length), [task.name])[0] for length in lengths]
        curve(quality, lengths, [one for one in reached if one], f"mAP, {task.name}", style="--s")
    quality.set(xlabel="epochs", ylabel="top-1, best layer, %")
    quality.legend()
    quality.xaxis.set_major_locator(MaxNLocator(integer=True))
    agreement_over_training(agreement, results.measured[-1], "nmi_labels", "")
    agreement.set(title="clusters and labels")


def refuse(terms: Terms) -> None:
    """A run of so many minutes has no stations on its way."""
    if terms.recipe.minutes is not None:
        raise UsageError("--minutes: this study judges a run after so many epochs; give --epochs")


STUDY = Study(
    "stopping",
    rows,
    sections,
    figure,
    source="appendix, stopping criterion: VOC 2007 and NMI, in words only",
    refuse=refuse,
    takes_voc=True,
)
