"""The appendix's table of data and clusterings: fc6 to fc8 learnt anew on frozen convolutions.

Its columns about VOC 2007 are not here.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from deepcluster.studies import paper
from deepcluster.studies.study import Line, Results, Row, Section, Study
from deepcluster.studies.terms import Terms
from deepcluster.studies.uncurated import prepare


def rows(terms: Terms) -> list[Row]:
    """Two sets of equally many images, two clusterings, and the network untrained."""
    return [
        Row("curated, k-means", terms.with_k(terms.k), images=terms.curated),
        Row("curated, PIC", terms.with_power_iteration(), images=terms.curated),
        Row("uncurated, k-means", terms.with_k(terms.k), images=terms.uncurated),
        Row("uncurated, PIC", terms.with_power_iteration(), images=terms.uncurated),
        Row("random", terms.recipe, trained=False),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """One figure a row and data set; the paper's is on ImageNet."""
    theirs = {"random": paper.MLP["random"]}
    for (images, clustering), value in paper.CLASSIF.items():
        ours = "curated" if images == "ImageNet" else "uncurated"
        theirs[f"{ours}, {clustering}"] = value
    columns = [data.name for data in terms.data]
    lines = [
        Line(
            name,
            (theirs[name],),
            [results.best_layer(name, data) for data in columns],
            results.note(name),
        )
        for name in results.names
    ]
    return [Section("top-1 of fc8, single crop", columns, lines)]


def figure(canvas: Figure, results: Results, terms: Terms) -> None:
    """Bars for the first data set."""
    canvas.set_size_inches(7, 4)
    axes = canvas.subplots()
    data = terms.data[0].name
    found = [results.best_layer(name, data) for name in results.names]
    axes.bar(results.names, [0.0 if best is None else best.mean for best in found])
    axes.set(ylabel="top-1 accuracy, %", title=data)
    axes.tick_params(axis="x", rotation=20)


STUDY = Study(
    "classif",
    rows,
    sections,
    figure,
    source=f"{paper.CLASSIF_SOURCE}; random from the {paper.MLP_SOURCE}",
    judge="mlp",
    needs_second=True,
    prepare=prepare,
)
