"""Table 2: transfer to Pascal VOC, where fc6 to fc8 learn, and where all layers do."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Line, Results, Row, Section, Study
from deepcluster.studies.tables import by_task
from deepcluster.studies.terms import Terms

PRINTED = {
    "supervised": paper.TABLE2["ImageNet labels"],
    "random-rgb": paper.TABLE2["random-rgb"],
    "random-sobel": paper.TABLE2["random-sobel"],
    "DeepCluster": paper.TABLE2["DeepCluster"],
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
    """What each task reaches, and how much of the gap is closed."""
    made = by_task(results, terms, PRINTED)
    if share := _share(results, terms):
        title = "share of the gap from random to supervised, %"
        made.append(Section(title, made[0].columns, [share], digits=0))
    return made


def _share(results: Results, terms: Terms) -> Line | None:
    """Between the untrained network of the recipe's front and the supervised one."""
    low = f"random-{terms.recipe.network.front}"
    names = ("DeepCluster", low, "supervised")
    if not {*names} <= {*results.names}:
        return None
    tasks = [task.name for task in terms.tasks]
    theirs = [tuple(PRINTED[name].get(task) for task in tasks) for name in names]
    ours = [
        tuple(None if one is None else one.mean for one in results.transferred(name, tasks))
        for name in names
    ]
    note = f"between {low} and supervised"
    return Line("DeepCluster", paper.gap_closed(*theirs), paper.gap_closed(*ours), note)


STUDY = Study("table2", rows, sections, bars_by_task, source=paper.TABLE2_SOURCE, judge="transfer")
