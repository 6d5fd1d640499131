"""Tables that several studies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepcluster.studies.paper import Tasks
from deepcluster.studies.study import Figured, Line, Results, Section
from deepcluster.studies.terms import Terms


def by_task(results: Results, terms: Terms, paper: Mapping[str, Tasks]) -> list[Section]:
    """What every row reaches in each task of transfer; classification also as the paper has it.

    Args:
        results: What the rows reached.
        terms: In which tasks.
        paper: What the paper reports of each row.
    """
    every = [task.name for task in terms.tasks]
    plain = [name for name in every if name.startswith("classification")]

    def section(title: str, tasks: Sequence[str], figure: str | None) -> Section:
        lines = [
            Line(
                name,
                tuple(paper[name].get(task) for task in tasks),
                results.transferred(name, tasks, figure),
                results.note(name),
            )
            for name in results.names
        ]
        return Section(title, tasks, lines)

    made = [section("transfer to Pascal VOC, % (mAP: 11-point; mean IoU)", every, None)]
    if plain:
        title = "classification as the paper computes it: plain mean average precision, %"
        made.append(section(title, plain, "plain"))
    return made


def by_layer(results: Results, terms: Terms, paper: Mapping[str, str]) -> list[Section]:
    """Accuracy of every row, layer by layer, on each data set; and its clusters beside the labels.

    Args:
        results: What the rows reached.
        terms: On which data.
        paper: What the paper has to say of each row.
    """
    made = []
    for data in terms.data:
        columns = list(results.top1(results.names[0], data.name))
        lines = [results.line(name, data.name, paper.get(name, "-")) for name in results.names]
        made.append(Section(f"top-1 on {data.name}, single crop", columns, lines))
    agreement = []
    for name in results.names:
        known = [entry.nmi_labels for entry in results.of(name) if entry.nmi_labels is not None]
        if known:
            agreement.append(Line(name, "-", [Figured.of(known)]))
    if agreement:
        made.append(Section("NMI of the final clusters with labels", ("NMI",), agreement, 3))
    return made
