"""Figure 2: clusters beside labels, beside the last epoch's, and quality against k.

Quality is the probe's accuracy and, where VOC is given, the paper's own: mAP on VOC 2007's val
without fine-tuning, by which it chose every hyper-parameter.
"""

from __future__ import annotations

from matplotlib.figure import Figure

from deepcluster.studies.drawing import agreement_over_training, curve
from deepcluster.studies.study import Line, Results, Row, Section, Study
from deepcluster.studies.terms import Terms

FACTORS = (1 / 16, 1 / 4, 1, 4)


def rows(terms: Terms) -> list[Row]:
    """The recipe, and the recipe with other numbers of clusters, on a logarithmic scale."""
    others = [k for k in _ks(terms) if k != terms.k]
    return [
        Row(_name(terms.k), terms.with_k(terms.k), every_seed=True),
        *(Row(_name(k), terms.with_k(k)) for k in others),
    ]


def _ks(terms: Terms) -> list[int]:
    """Numbers of clusters around the recipe's that as many images can fill."""
    most = max(2, terms.images // 4)
    return sorted({min(most, max(2, round(terms.k * factor))) for factor in FACTORS} | {terms.k})


def _name(k: int) -> str:
    return f"k = {k}"


def sections(results: Results, terms: Terms) -> list[Section]:
    """Where the two curves begin and end, and the accuracy for every k."""
    data = terms.data[0].name
    curves = []
    for title, key, paper in (
        ("NMI with labels", "nmi_labels", "rises (figure 2a, no figures printed)"),
        ("NMI with the last epoch", "nmi_last", "rises, stays below 0.8 (figure 2b)"),
    ):
        for measured in results.of(_name(terms.k)):
            known = [nmi for _, nmi in measured.agreement(key)]
            if known:
                ends = (known[0], known[len(known) // 2], known[-1])
                curves.append(Line(f"{title}, seed {measured.seed}", paper, ends))
    by_k = [
        Line(_name(k), "best at ten clusters a class (figure 2c)", [best], results.note(_name(k)))
        for k in _ks(terms)
        if (best := results.best_layer(_name(k), data)) is not None
    ]
    return [
        Section("agreement of the clusters", ("first", "middle", "last"), curves, digits=3),
        Section(f"top-1 on {data} against k", ("best layer",), by_k),
        *_on_val(results, terms),
    ]


def _on_val(results: Results, terms: Terms) -> list[Section]:
    """The paper's own axis, where VOC was given."""
    lines = [
        Line(
            name, "best at ten clusters a class (figure 2c)", results.transferred(name, [task.name])
        )
        for task in terms.tasks
        for name in map(_name, _ks(terms))
        if name in results.names
    ]
    title = "VOC 2007 val against k, classification without fine-tuning, %"
    return [Section(title, ("mAP",), lines)] if lines else []


def figure(canvas: Figure, results: Results, terms: Terms) -> None:
    """The paper's three panels."""
    canvas.set_size_inches(14, 4)
    labels, last, quality = canvas.subplots(1, 3)
    for measured in results.of(_name(terms.k)):
        for axes, key in ((labels, "nmi_labels"), (last, "nmi_last")):
            agreement_over_training(axes, measured, key, f"seed {measured.seed}")
    labels.set(title="clusters and labels")
    last.set(title="clusters and the last epoch's")
    last.legend()
    data = terms.data[0].name
    found = {k: results.best_layer(_name(k), data) for k in _ks(terms)}
    known_k = {k: best for k, best in found.items() if best is not None}
    curve(quality, list(known_k), list(known_k.values()), data)
    quality.set(title="quality against k", xlabel="k", ylabel="top-1, best layer, %", xscale="log")
    quality.set_xticks(list(known_k), labels=[f"{k:,}" for k in known_k])
    quality.minorticks_off()
    for task in terms.tasks:
        beside = quality.twinx()
        reached = {k: results.transferred(_name(k), [task.name])[0] for k in known_k}
        on_val = {k: figured for k, figured in reached.items() if figured is not None}
        curve(beside, list(on_val), list(on_val.values()), task.name, style="C3--s")
        beside.set_ylabel(f"mAP, {task.name}, %", color="C3")


STUDY = Study(
    "fig2",
    rows,
    sections,
    figure,
    source="figure 2 and section 4.1, in words only",
    takes_voc=True,
)
