"""Tables that several studies share."""

from __future__ import annotations

from collections.abc import Mapping

from deepcluster.studies.study import Figured, Line, Results, Section
from deepcluster.studies.terms import Terms


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
