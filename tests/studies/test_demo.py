from __future__ import annotations

import re
from pathlib import Path

import child
import pytest

from deepcluster.studies.demo import demo_run


def scores(output: str) -> tuple[list[float], list[float]]:
    """Untrained and trained: neighbour agreement in percent, NMI."""
    agreement = re.search(r"overlap excluded +([\d.]+)% +([\d.]+)%", output)
    nmi = re.search(r"\(NMI\) +([\d.]+) +([\d.]+)", output)
    assert agreement, output
    assert nmi, output
    return [float(x) for x in agreement.groups()], [float(x) for x in nmi.groups()]


def test_the_demo_runs_and_compares_and_is_not_repeated(tmp_path: Path):
    code, output = child.run(["demo", "--epochs", "1"], tmp_path)
    assert code == 0, output
    agreement, nmi = scores(output)
    assert all(0 < value < 100 for value in agreement)
    assert all(0 < value < 1 for value in nmi)
    code, again = child.run(["demo", "--epochs", "1"], tmp_path)
    assert code == 0
    assert scores(again) == (agreement, nmi)
    assert "1/1" not in again  # no epoch is trained twice


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_trained_is_clearly_better_than_untrained(seed: int, tmp_path: Path):
    code, output = child.run(["demo", "--seed", str(seed)], tmp_path)
    assert code == 0, output
    agreement, nmi = scores(output)
    assert agreement[1] > agreement[0] + 8
    assert nmi[1] > nmi[0] + 0.1


def test_the_demo_has_a_seed_and_a_length():
    assert demo_run(3, 5).seed == 3
    assert demo_run(3, 5).epochs == 5
