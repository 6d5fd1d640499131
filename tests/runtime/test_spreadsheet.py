"""CSV that a spreadsheet opens: nothing is run, and nothing is lost."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from deepcluster.collection.labelling import read_labels
from deepcluster.collection.table import write_csv
from deepcluster.runtime.spreadsheet import as_it_was, harmless
from deepcluster.visuals.tables import csv_of


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "'=1", "\t=1"])
def test_text_that_would_be_a_formula_is_marked(text: str):
    assert harmless([text]) == ["'" + text]


def test_all_else_stays():
    row = [7, -0.5, np.float32(-2), None, "holiday/=1.jpg", "it's", "'quoted'", ""]
    assert harmless(row) == row


@given(some.text(alphabet="='+-@ ab", max_size=6))
def test_what_was_marked_comes_back(text: str):
    (cell,) = harmless([text])
    assert isinstance(cell, str)
    assert as_it_was(cell) == text
    assert not cell.lstrip().startswith(("=", "+", "-", "@"))


def test_tables_of_verbs_are_harmless_and_can_be_read_again(tmp_path):
    names = ["=cmd|' /C calc'!A0.jpg", "-fine.jpg", "plain.jpg"]
    place = tmp_path / "few.csv"
    write_csv(place, ["path", "label"], zip(names, ["=a", "b", "b"], strict=True))
    with place.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["path"] for row in written] == ["'" + names[0], "'" + names[1], names[2]]
    assert read_labels(place, names, tmp_path) == {0: "=a", 1: "b", 2: "b"}
    assert csv_of(["path"], [(names[1],)]) == b"path\n'-fine.jpg\n"
