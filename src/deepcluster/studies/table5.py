"""Table 5: photographs of the same landmark, found by R-MAC; with and without Sobel filters."""

from __future__ import annotations

from deepcluster.studies import paper
from deepcluster.studies.depth import ARCHITECTURES
from deepcluster.studies.drawing import bars_by_task
from deepcluster.studies.study import Line, Results, Row, Section, Study
from deepcluster.studies.table4 import rows as rows_of_table4
from deepcluster.studies.table4 import ways
from deepcluster.studies.tables import share_of_gap, task_section
from deepcluster.studies.terms import Terms

_DEEP = "VGG-16"  # the paper's network for this task
_SOBEL, _COLOURS = f"supervised {_DEEP}", f"supervised RGB {_DEEP}"
_without = (paper.TABLE5["ImageNet labels"]["Oxford"] or 0) - paper.SOBEL_HELPS_OXFORD

PRINTED: dict[str, paper.Tasks] = {
    _SOBEL: paper.TABLE5["ImageNet labels"],
    f"random {_DEEP}": paper.TABLE5["random"],
    f"DeepCluster {_DEEP}": paper.TABLE5["DeepCluster"],
    _COLOURS: {"Oxford": round(_without, 1)},
}


def rows(terms: Terms) -> list[Row]:
    """The rows of table 4, and the supervised VGG-16 on colours."""
    colours = terms.with_arch(ARCHITECTURES[_DEEP]).supervised("rgb")
    note = f"paper: with Sobel filters, less {paper.SOBEL_HELPS_OXFORD} points (section 5.3)"
    return [
        *rows_of_table4(terms),
        Row.tuned(_COLOURS, colours, tuned_like=_SOBEL, note=note),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """Mean average precision, how much of the gap is closed, and what Sobel filters add."""
    tasks = [task.name for task in terms.tasks]
    title = "retrieval by R-MAC, mAP, % (of the revisited ground truth: medium)"
    made = [task_section(results, title, tasks, PRINTED)]
    made += share_of_gap(results, terms, PRINTED, ways())
    if {_SOBEL, _COLOURS} <= {*results.names} and terms.recipe.network.front == "sobel":
        found = zip(*(results.transferred(name, tasks) for name in (_SOBEL, _COLOURS)), strict=True)
        ours = [with_ and without and with_.mean - without.mean for with_, without in found]
        theirs = tuple(paper.SOBEL_HELPS_OXFORD if task == "Oxford" else None for task in tasks)
        lines = [Line(_SOBEL, theirs, ours, "the paper says of Paris: no improvement")]
        made.append(Section("what Sobel filters add, points of mAP", tasks, lines))
    return made


STUDY = Study("table5", rows, sections, bars_by_task, source=paper.TABLE5_SOURCE, judge="retrieval")
