"""The paper's figures as they are typed in, held against its source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deepcluster.studies import paper

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "deepcluster.tex"
NAMES = {  # how the source calls a row, and where its figures are typed in
    r"\\OURS YFCC100M": ("TEN_CROPS", "YFCC100M"),
    r"\\OURS PIC": ("TEN_CROPS", "PIC"),
    r"\\OURS RGB": ("TEN_CROPS", "RGB"),
    r"\\OURS single crop": ("TABLE1", "DeepCluster"),
    r"\\OURS \$10\$ crops": ("TEN_CROPS", "DeepCluster"),
    "ImageNet labels": ("TABLE1", "ImageNet labels"),
    "Random": ("TABLE1", "random"),
    "Places labels": ("TABLE1", "Places labels"),
}


@pytest.mark.data
@pytest.mark.parametrize("printed", NAMES)
def test_linear_figures_are_those_of_the_source(printed: str):
    if not SOURCE.is_file():
        pytest.skip("the paper's source is not beside the checkout")
    table, name = NAMES[printed]
    lines = re.findall(rf"^\s*{printed}\s*&&(.*)\\\\", SOURCE.read_text(), re.MULTILINE)
    wide = [line for line in lines if line.count("&") >= 10]
    assert wide
    for line in wide:
        cells = [cell for cell in line.split("&") if cell.strip()]
        values = [re.search(r"\d+\.\d", cell) for cell in cells]
        figures = tuple(None if found is None else float(found[0]) for found in values)
        assert (*getattr(paper, table)[name][0], *getattr(paper, table)[name][1]) == figures


TRANSFER = {  # the label of the table, how it calls a row, and where its figures are typed in
    ("tab:voc", "ImageNet labels"): paper.TABLE2["ImageNet labels"],
    ("tab:voc", "Random-rgb"): paper.TABLE2["random-rgb"],
    ("tab:voc", "Random-sobel"): paper.TABLE2["random-sobel"],
    ("tab:voc", r"\\OURS"): paper.TABLE2["DeepCluster"],
    ("tab:flickr", r"\\OURS\s*&& ImageNet"): paper.TABLE3["ImageNet"],
    ("tab:flickr", r"\\OURS\s*&& YFCC100M"): paper.TABLE3["YFCC100M"],
    ("tab:pic", r"\\OURS\s*& \$k\$-means"): paper.PIC["k-means"],
    ("tab:pic", r"\\OURS\s*& PIC"): paper.PIC["PIC"],
    ("tab:retrieval", "ImageNet labels"): paper.TABLE5["ImageNet labels"],
    ("tab:retrieval", "Random"): paper.TABLE5["random"],
    ("tab:retrieval", r"\\OURS"): paper.TABLE5["DeepCluster"],
    ("tab:vocVGG", "ImageNet labels"): dict(enumerate(paper.TABLE4["ImageNet labels"])),
    ("tab:vocVGG", "Random"): dict(enumerate(paper.TABLE4["random"])),
    ("tab:vocVGG", r"\\OURS"): dict(enumerate(paper.TABLE4["DeepCluster"])),
    ("tab:mlpImageNet", r"Supervised\s*& ImageNet"): {"": paper.MLP["supervised"]},
    ("tab:mlpImageNet", r"Supervised Sobel\s*& ImageNet"): {"": paper.MLP["supervised Sobel"]},
    ("tab:mlpImageNet", r"Random\s*& -"): {"": paper.MLP["random"]},
    ("tab:mlpImageNet", r"\\OURS\s*& ImageNet"): {"": paper.MLP["DeepCluster"]},
    ("tab:mlpImageNet", r"\\OURS\s*& YFCC100M"): {"": paper.MLP["YFCC100M"]},
}


@pytest.mark.data
@pytest.mark.parametrize(("table", "printed"), TRANSFER)
def test_transfer_figures_are_those_of_the_source(table: str, printed: str):
    if not SOURCE.is_file():
        pytest.skip("the paper's source is not beside the checkout")
    before, label, _ = SOURCE.read_text().partition(rf"\label{{{table}}}")
    assert label
    text = before.rpartition(r"\begin{tabular}")[2]
    (line,) = re.findall(rf"^\s*{printed}\s*&&?(.*)\\\\", text, re.MULTILINE)
    cells = [cell for cell in line.split("&") if cell.strip()]
    values = [re.search(r"\d+\.\d", cell) for cell in cells]
    assert list(TRANSFER[table, printed].values()) == [
        None if found is None else float(found[0]) for found in values
    ]


def test_shares_of_the_gap():
    shares = paper.gap_closed(
        *(paper.TABLE1[name][0] for name in ("DeepCluster", "random", "ImageNet labels"))
    )
    assert [round(share or 0) for share in shares] == [17, 63, 78, 73, 60]
    assert paper.gap_closed((1.0, None), (2.0, 1.0), (2.9, 3.0)) == (None, None)
    assert paper.gap_closed((4.0,), (2.0,), (6.0,), chance=3.0) == (50.0,)
    assert paper.gap_closed((4.0,), (2.0,), (6.0,), chance=5.0) == (None,)
