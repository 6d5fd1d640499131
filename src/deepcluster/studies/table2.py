"""Table 2: transfer to Pascal VOC, where fc6 to fc8 learn, and where all layers do."""

from __future__ import annotations

from matplotlib.figure import Figure

from deepcluster.studies import paper
from deepcluster.studies.study import Figured, Line, Results, Row, Section, Study
from deepcluster.studies.terms import Terms

PAPER_NAMES = {
    "supervised": "ImageNet labels",
    "random-rgb": "random-rgb",
    "random-sobel": "random-sobel",
    "DeepCluster": "DeepCluster",
}


def rows(terms: Terms) -> list[Row]:
    """The method, and what lies below and above it; random with both fronts, as in the paper."""
    return [
        Row.tuned("supervised", terms.supervised()),
        Row("random-rgb", terms.with_front("rgb"), trained=False, every_seed=True),
        Row("random-sobel", terms.with_front("sobel"), trained=False, every_seed=True),
        Row("DeepCluster", terms.recipe, every_seed=True),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """The tasks' own figures, classification as the paper computes it, and the gap closed."""
    columns = [task.name for task in terms.tasks]
    plain = [name for name in columns if name.startswith("classification")]
    made = [_section(results, columns, None, "transfer to Pascal VOC, % (mAP: 11-point)")]
    if plain:
        title = "classification as the paper computes it: plain mean average precision, %"
        made.append(_section(results, plain, "plain", title))
    if share := _share(results, columns, terms):
        title = "share of the gap from random to supervised, %"
        made.append(Section(title, columns, [share], digits=0))
    return made


def _section(results: Results, columns: list[str], figure: str | None, title: str) -> Section:
    lines = [
        Line(name, _printed(name, columns), _reached(results, name, columns, figure), note)
        for name, note in ((name, results.note(name)) for name in results.names)
    ]
    return Section(title, columns, lines)


def _reached(
    results: Results, row: str, columns: list[str], figure: str | None = None
) -> list[Figured | None]:
    return [results.transferred(row, column, figure) for column in columns]


def _printed(row: str, columns: list[str]) -> paper.Figures:
    printed = paper.TABLE2[PAPER_NAMES[row]]
    return tuple(printed.get(column) for column in columns)


def _share(results: Results, columns: list[str], terms: Terms) -> Line | None:
    """Between the untrained network of the recipe's front and the supervised one."""
    low = f"random-{terms.recipe.network.front}"
    names = ("DeepCluster", low, "supervised")
    if not {*names} <= {*results.names}:
        return None
    ours = [
        tuple(None if found is None else found.mean for found in _reached(results, name, columns))
        for name in names
    ]
    theirs = [_printed(name, columns) for name in names]
    note = f"between {low} and supervised"
    return Line("DeepCluster", paper.gap_closed(*theirs), paper.gap_closed(*ours), note)


def figure(canvas: Figure, results: Results, terms: Terms) -> None:
    """Bars: one group for each task, one bar for each network."""
    columns = [task.name for task in terms.tasks]
    canvas.set_size_inches(2 * len(columns) + 3, 4)
    axes = canvas.subplots()
    width = 0.8 / len(results.names)
    for number, name in enumerate(results.names):
        found = _reached(results, name, columns)
        axes.bar(
            [place + number * width for place in range(len(columns))],
            [one.mean if one else 0.0 for one in found],
            width,
            yerr=[one.spread or 0.0 if one else 0.0 for one in found],
            label=name,
        )
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(columns))], columns)
    axes.set_ylabel("%")
    axes.legend(fontsize="small")


STUDY = Study("table2", rows, sections, figure, source=paper.TABLE2_SOURCE, judge="transfer")
