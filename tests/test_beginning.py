"""Before and after training: what a run began with is no merit of training."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepcluster import keepsakes
from deepcluster.beginning import as_it_began, new_network
from deepcluster.clusters import KMeans
from deepcluster.presets import small
from deepcluster.runtime.display import Display
from deepcluster.runtime.world import World
from deepcluster.session import Asked, train
from deepcluster.settings import Run

FIRST = "convnet.convolutions.conv1.0.weight"


def hardly_trained(**network: object) -> Run:
    """Steps so small that weights stay as they were."""
    run = small()
    return replace(
        run,
        epochs=1,
        network=replace(run.network, width=16, views=1, **network),  # type: ignore[arg-type]
        clustering=KMeans(k=4),
        training=replace(run.training, step=1e-12, head_step=1.0, weight_decay=0.0),
    )


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, torch.Tensor]]:
    """The weights that the page compares with."""
    seen: list[dict[str, torch.Tensor]] = []

    def watched(*given: object) -> torch.nn.Module:
        network = as_it_began(*given)  # type: ignore[arg-type]
        seen.append(network.trunk.state_dict())
        return network

    monkeypatch.setattr(keepsakes, "as_it_began", watched)
    return seen


def trained(run: Run, images: Path, out: Path) -> dict[str, torch.Tensor]:
    with Display(speaks=False).shown() as display:
        train(Asked(images, lambda count, gpu: (run, []), out=out), World(), display)
    return load_file(out / "model.safetensors")


def test_the_page_compares_with_what_the_run_began_with(
    compared: list[dict[str, torch.Tensor]], textures: Callable[[int], Path], tmp_path: Path
):
    images = textures(40)
    run = hardly_trained(patches=2)
    left = trained(run, images, tmp_path / "patches")
    drawn = new_network(run).trunk.state_dict()
    assert not torch.allclose(left[FIRST], drawn[FIRST])
    torch.testing.assert_close(compared[0][FIRST], left[FIRST], atol=1e-6, rtol=0)

    # A run that begins with its weights, and one whose figures are of the first format.
    given = hardly_trained(patches=0, init=str(tmp_path / "patches"))
    begun = trained(given, images, tmp_path / "given")
    assert torch.equal(compared[1][FIRST], left[FIRST])
    torch.testing.assert_close(begun[FIRST], left[FIRST], atol=1e-6, rtol=0)
    known = json.loads((tmp_path / "given/baseline.json").read_text())
    for one in known["comparisons"]:
        one["untrained"] = 0.123
    for number, written in ((2, 0.123), (1, None)):
        known["format"] = number
        (tmp_path / "given/baseline.json").write_text(json.dumps(known))
        trained(replace(given, epochs=4 - number), images, tmp_path / "given")
        after = json.loads((tmp_path / "given/baseline.json").read_text())
        figures = {one["untrained"] for one in after["comparisons"]}
        assert (figures == {written}) == (number == 2)
        known = after
    assert len(compared) == 3
