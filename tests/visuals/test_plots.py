"""The curves of a run: whole epochs, named axes, and nothing that cannot be seen."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from PIL import Image

from deepcluster.visuals import plots


def journal(epochs: int) -> list[dict[str, Any]]:
    return [
        {
            "epoch": epoch,
            "loss": 3 + 2.5 / (epoch + 1),
            "ln_k": math.log(300),
            "nmi_last": epoch / (epoch + 4) if epoch else None,
            "nmi_labels": 0.3,
            "seconds": {"look": 3.0, "group": 0.5, "learn": 12.0},
        }
        for epoch in range(epochs)
    ]


@pytest.mark.parametrize("epochs", [1, 2, 3, 40, 500])
def test_epochs_are_whole_numbers_on_labelled_axes(epochs: int):
    figure = plots.drawn_curves(journal(epochs))
    figure.canvas.draw()
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "NMI", "seconds"]
    for axes in figure.axes:
        assert axes.get_xlabel() == "epoch"
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert ticks
        assert all(tick == round(tick) and 1 <= tick <= epochs for tick in ticks)
        told = [label.get_text() for label in axes.get_xticklabels()]
        assert {f"{tick:.0f}" for tick in ticks} <= {*told}
        assert not any("." in text for text in told)
        assert axes.get_ylim()[0] <= 0
        for line in axes.get_lines():  # a line that ends on the frame would be cut in half
            seen = line.get_ydata()[~np.isnan(line.get_ydata())]
            bottom, top = axes.get_ylim()
            assert bottom < seen.min()
            assert seen.max() < top


def test_a_single_epoch_is_seen():
    low = [{**entry, "loss": 1.0} for entry in journal(1)]
    with Image.open(io.BytesIO(plots.curves(low))) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    blue = (np.abs(pixels - [31, 119, 180]).sum(axis=2) < 30)[:, : pixels.shape[1] // 3]
    rows, columns = np.nonzero(blue)
    below = rows > pixels.shape[0] / 2  # where the loss is, and the legend is not
    assert below.sum() > 20
    assert np.ptp(columns[below]) < 20


def test_what_a_supervised_run_has_not_is_left_out():
    entries = [{**entry, "seconds": {"learn": 12.0}} for entry in journal(3)]
    for entry in entries:
        del entry["nmi_last"], entry["nmi_labels"]
    figure = plots.drawn_curves(entries)
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "seconds"]
    named = [[text.get_text() for text in axes.get_legend().get_texts()] for axes in figure.axes]
    assert named == [["loss", "guessing, ln k"], ["learn"]]


def test_a_line_keeps_its_colour_where_another_is_missing():
    def colour(epochs: int) -> object:
        (axes,) = (
            one for one in plots.drawn_curves(journal(epochs)).axes if one.get_ylabel() == "NMI"
        )
        return next(line.get_color() for line in axes.get_lines() if "folders" in line.get_label())

    assert colour(1) == colour(3)


@pytest.mark.parametrize("entries", [[], [{"epoch": 0}], [{"epoch": 0, "loss": math.inf}]])
def test_a_journal_without_figures_is_an_empty_panel(entries: list[dict[str, Any]]):
    (only,) = plots.drawn_curves(entries).axes
    assert only.get_title() == "loss"
    assert not only.lines
