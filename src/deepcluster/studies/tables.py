"""Tables that several studies share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from deepcluster.studies.paper import Tasks, gap_closed
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

    title = "transfer to Pascal VOC, % (mAP: 11-point; mean IoU)"
    made = [task_section(results, title, every, paper)]
    if plain:
        title = "classification as the paper computes it: plain mean average precision, %"
        made.append(task_section(results, title, plain, paper, "plain"))
    return made


def task_section(
    results: Results,
    title: str,
    tasks: Sequence[str],
    paper: Mapping[str, Tasks],
    figure: str | None = None,
) -> Section:
    """What every row reaches in some tasks: their first figure, or another."""
    lines = [
        Line(
            name,
            tuple(paper.get(name, {}).get(task) for task in tasks),
            results.transferred(name, tasks, figure),
            results.note(name),
        )
        for name in results.names
    ]
    return Section(title, tasks, lines)


def share_of_gap(
    results: Results,
    terms: Terms,
    paper: Mapping[str, Tasks],
    ways: Sequence[tuple[str, str, str]],
) -> list[Section]:
    """How much of the way from one row to another was gone, in each task of transfer.

    Args:
        results: What the rows reached.
        terms: In which tasks.
        paper: What the paper reports of each row.
        ways: The row in question, the one below it and the one above; none where one was not run.
    """
    ways = [names for names in ways if {*names} <= {*results.names}]
    tasks = [task.name for task in terms.tasks]
    plain = [name for name in tasks if name.startswith("classification")]

    def section(title: str, tasks: Sequence[str], figure: str | None = None) -> Section:
        lines = []
        for names in ways:
            theirs = [tuple(paper.get(name, {}).get(task) for task in tasks) for name in names]
            found = [results.transferred(name, tasks, figure) for name in names]
            ours = [tuple(None if one is None else one.mean for one in row) for row in found]
            note = f"between {names[1]} and {names[2]}"
            lines.append(Line(names[0], gap_closed(*theirs), gap_closed(*ours), note))
        return Section(title, tasks, lines, digits=0)

    title = "share of the gap from random to supervised, %"
    made = [section(title, tasks)]
    if plain:
        made.append(section(f"{title}, by plain mean average precision", plain, "plain"))
    return made if ways else []


def by_data(results: Results, terms: Terms, paper: Mapping[str, float]) -> list[Section]:
    """One figure a row and data set, of fc6 to fc8 learnt anew; the paper's is on ImageNet."""
    columns = [data.name for data in terms.data]
    lines = [
        Line(
            name,
            (paper.get(name),),
            [results.best_layer(name, data) for data in columns],
            results.note(name),
        )
        for name in results.names
    ]
    return [Section("top-1 of fc8, single crop", columns, lines)]


def by_layer(results: Results, terms: Terms, *paper: Mapping[str, str]) -> list[Section]:
    """Accuracy of every row, layer by layer, on each data set; and its clusters beside the labels.

    Args:
        results: What the rows reached.
        terms: On which data.
        paper: What the paper has to say of each row: on all data, or on each.
    """
    made = []
    for place, data in enumerate(terms.data):
        columns = list(results.top1(results.names[0], data.name))
        theirs = paper[min(place, len(paper) - 1)]
        lines = [results.line(name, data.name, theirs.get(name, "-")) for name in results.names]
        made.append(Section(f"top-1 on {data.name}, single crop", columns, lines))
    agreement = []
    for name in results.names:
        known = [entry.nmi_labels for entry in results.of(name) if entry.nmi_labels is not None]
        if known:
            agreement.append(Line(name, "-", [Figured.of(known)]))
    if agreement:
        made.append(Section("NMI of the final clusters with labels", ("NMI",), agreement, 3))
    return made
