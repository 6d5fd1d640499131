"""The appendix's table of fc6 to fc8 learnt anew on frozen convolutions, on ImageNet."""

from __future__ import annotations

from deepcluster.studies import paper, uncurated
from deepcluster.studies.drawing import bars_of_first_data
from deepcluster.studies.study import Line, Results, Row, Section, Study
from deepcluster.studies.tables import by_data
from deepcluster.studies.terms import Terms

PRINTED = {
    "supervised RGB": paper.MLP["supervised"],
    "supervised Sobel": paper.MLP["supervised Sobel"],
    "random": paper.MLP["random"],
    "DeepCluster": paper.MLP["DeepCluster"],
    "DeepCluster, uncurated": paper.MLP["YFCC100M"],
}


def rows(terms: Terms) -> list[Row]:
    """The method, what lies below and above it; other images where there is a second data set."""
    made = [
        Row.tuned("supervised Sobel", terms.supervised("sobel")),
        Row.tuned("supervised RGB", terms.supervised("rgb"), tuned_like="supervised Sobel"),
        Row("random", terms.recipe, trained=False, every_seed=True),
        Row("DeepCluster", terms.recipe, every_seed=True),
    ]
    if len(terms.data) > 1:
        fewer = "fewer images than DeepCluster, seen more often: see classif for equally many"
        longer = terms.on_fewer(terms.uncurated)
        made.append(Row("DeepCluster, uncurated", longer, images=terms.uncurated, note=fewer))
    return made


def prepare(terms: Terms) -> None:
    """Write the list of unbalanced images, where there are any."""
    if len(terms.data) > 1:
        uncurated.prepare(terms)


def sections(results: Results, terms: Terms) -> list[Section]:
    """Accuracy, and how much of the gap is closed."""
    made = by_data(results, terms, PRINTED)
    high = "supervised RGB" if terms.recipe.network.front == "rgb" else "supervised Sobel"
    lines = [
        line
        for name in ("DeepCluster", "DeepCluster, uncurated")
        if (line := _share(results, terms, name, "random", high)) is not None
    ]
    if lines:
        title = "share of the gap from random to supervised, %"
        made.append(Section(title, [data.name for data in terms.data], lines, digits=0))
    return made


def _share(results: Results, terms: Terms, *names: str) -> Line | None:
    """Of the way from the second row to the third that the first has gone."""
    if not {*names} <= {*results.names}:
        return None
    theirs = [(PRINTED[name],) for name in names]
    ours: list[float | None] = []
    for data in terms.data:
        found = (results.best_layer(name, data.name) for name in names)
        means = [(None if one is None else one.mean,) for one in found]
        ours += paper.gap_closed(*means, chance=results.chance(data.name))
    note = f"between {names[1]} and {names[2]}"
    return Line(names[0], paper.gap_closed(*theirs), ours, note)


STUDY = Study(
    "mlp",
    rows,
    sections,
    bars_of_first_data,
    source=f"ImageNet; {paper.MLP_SOURCE}",
    judge="mlp",
    prepare=prepare,
)
