"""What may be said to the verb reproduce."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from deepcluster.flags import Count, shown_as
from deepcluster.reading_flags import LinkFlags
from deepcluster.studies.terms import Grid

Folder = Annotated[Path | None, shown_as("DIR")]
Name = Annotated[str | None, shown_as("NAME")]
Amount = Annotated[float | None, shown_as("X")]


@dataclass(frozen=True)
class Reproduce(LinkFlags):
    """One table or figure of the paper: train, judge, and set it beside the paper's figures.

    The same command goes on where it was stopped; what is done is not done again.
    """

    data: Folder = None
    """Folder with train/ and val/ (or test/), one folder per class: trained and judged on."""

    second: Folder = None
    """A second such folder, best of scenes: judged on; trained on by uncurated and its like."""

    voc: Folder = None
    """Pascal VOC's devkit, of studies that judge by transfer to it; fig2 and stopping may."""

    oxford: Folder = None
    """Of table5: a folder with images/ and gt_files/, as Oxford5k has them."""

    paris: Folder = None
    """Of table5: the same of Paris6k."""

    whiten_on: Name = None
    """Of table5: images that the whitening is learnt on, if not the other city."""

    retrieval_size: Count = None
    """Of table5: pixels of the longer side of its images (1024)."""

    tasks: tuple[str, ...] = ()
    """Judge in these tasks of transfer only, such as "detection all"; columns that are done for
    every row stay."""

    networks_of: tuple[Path, ...] = ()
    """Folders of other studies: what they trained in the same way is taken from there."""

    adopt: tuple[str, ...] = ()
    """Rows trained before, as ROW=RUN, several times for several seeds: judged, not trained."""

    beside: tuple[str, ...] = ()
    """More rows, by names of yours, of runs trained before, as NAME=RUN."""

    out: Folder = None
    """Where all of it is kept (reproductions/NAME if not given)."""

    smoke: bool = False
    """The smallest size, on images that come along: minutes on two cores."""

    rows: tuple[str, ...] = ()
    """Train and judge these rows of the study only; those that are done stay."""

    seeds: tuple[int, ...] = ()
    """Seeds of the main rows (0 1 2; of --smoke 0); the other rows have the first one only."""

    all_seeds: bool = False
    """Every seed for every row."""

    preset: Name = None
    """The recipe; chosen by the number of images if not given."""

    k: Count = None
    """Number of clusters, if not the recipe's."""

    input_size: Count = None
    """Side of the square that the networks see, if not the recipe's."""

    epochs: Count = None
    """Epochs of every row, if not the recipe's."""

    minutes: Amount = None
    """Time to train every row for, supervised ones too."""

    ten_crops: bool = False
    """The mean over ten crops beside the single one."""

    probe_epochs: Count = None
    """Epochs of the probes (30)."""

    supervised_steps: tuple[float, ...] = Grid().steps
    """Steps that the supervised baseline is tuned over; one of each needs no trials."""

    supervised_decays: tuple[float, ...] = Grid().decays
    """Weight decays that it is tuned over."""

    supervised_epochs: tuple[int, ...] = Grid().epochs
    """Numbers of epochs that it is tuned over."""

    tune: bool = True
    """Tune the supervised baseline; --no-tune takes the middle of each list."""

    device: str = "auto"
    """cpu, cuda, or auto: the GPU if there is one."""

    workers: Count = None
    """Threads that crop images; one for each core if not given."""
