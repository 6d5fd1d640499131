"""Cells of CSV files that people open in a spreadsheet, which takes some text for formulas."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Past marks that are there already, so that taking one away always gives the text back.
_FORMULA = re.compile(r"[\s']*[=+\-@]")


def harmless(row: Iterable[object]) -> list[object]:
    """The cells of a line; text that would be taken for a formula has a `'` before it."""
    return [f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell for cell in row]


def as_it_was(text: str) -> str:
    """The text that `harmless` has made this cell from."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
