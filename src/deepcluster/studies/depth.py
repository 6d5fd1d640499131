"""AlexNet against VGG-16, each beside its own untrained network."""

from __future__ import annotations

from matplotlib.figure import Figure

from deepcluster.studies import paper
from deepcluster.studies.study import Line, Results, Row, Section, Study
from deepcluster.studies.terms import Terms

ARCHITECTURES = {"AlexNet": "alexnet", "VGG-16": "vgg16"}


def rows(terms: Terms) -> list[Row]:
    """Two networks, trained and not."""
    deep = {name: terms.with_arch(arch).recipe for name, arch in ARCHITECTURES.items()}
    return [
        *(Row(name, run) for name, run in deep.items()),
        *(Row(f"random {name}", run, trained=False) for name, run in deep.items()),
    ]


def sections(results: Results, terms: Terms) -> list[Section]:
    """The best layer and the last one of each network, on each data set."""
    theirs = {
        f"{prefix}{name}": f"{paper.TABLE4[row][place]} (mAP, detection)"
        for prefix, row in (("", "DeepCluster"), ("random ", "random"))
        for place, name in enumerate(ARCHITECTURES)
    }
    made = []
    for data in terms.data:
        lines = []
        for name in results.names:
            last = list(results.top1(name, data.name).items())[-1]
            best = results.best_layer(name, data.name)
            lines.append(
                Line(name, theirs.get(name, "-"), [best, last[1]], f"the last is {last[0]}")
            )
        title = f"top-1 on {data.name}, single crop"
        made.append(Section(title, ("best layer", "last layer"), lines))
    return made


def figure(canvas: Figure, results: Results, terms: Terms) -> None:
    """Accuracy against depth, as a share of the network."""
    canvas.set_size_inches(6, 4)
    axes = canvas.subplots()
    for name in results.names:
        top1 = [found.mean for found in results.top1(name, terms.data[0].name).values()]
        places = [(number + 1) / len(top1) for number in range(len(top1))]
        axes.plot(places, top1, marker="o", label=name)
    axes.set(xlabel="depth (share of the convolutions)", ylabel="top-1 accuracy, %")
    axes.set_title(terms.data[0].name)
    axes.legend()


STUDY = Study(
    "depth", rows, sections, figure, source=f"{paper.TABLE4_SOURCE}: another task", is_deep=True
)
