"""Features of two processes are those of one."""

import warnings

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from deepcluster.features import Whitening
from deepcluster.features.extract import RawFeatures
from deepcluster.features.moments import Moments
from deepcluster.features.raw_rows import RawRows
from deepcluster.runtime.errors import RowsExcluded
from deepcluster.runtime.world import World

SHARES = ((150, 171), (0, 321), (320, 1))
BAD = 160


def rows_of_all() -> torch.Tensor:
    source = torch.Generator().manual_seed(0)
    mixing = torch.randn(10, 10, generator=source)
    rows = 1e4 + torch.randn(321, 10, generator=source) @ mixing
    rows[BAD] = torch.nan
    return rows


def measured(rows: torch.Tensor, world: World, frame: torch.Tensor) -> RawFeatures:
    raw = RawRows(len(rows), rows.shape[1], "device", torch.device("cpu"))
    raw.set_frame(frame, world)
    raw.append(rows)
    moments = Moments(rows.shape[1], torch.device("cpu"))
    finite = rows.isfinite().all(dim=1)
    for block in raw.blocks():
        moments.add(block[block.isfinite().all(dim=1)])
    return RawFeatures(raw, moments.over(world), finite)


def results(rows: torch.Tensor, world: World) -> dict[str, torch.Tensor]:
    # The leading process's first rows are the frame; others' are never looked at.
    raw = measured(rows, world, rows_of_all()[:100] if world.leads else torch.zeros(0, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RowsExcluded)
        features = Whitening(6)(raw, world)
    return {
        "count": torch.tensor(raw.moments.count),
        "mean": raw.moments.mean,
        "covariance": raw.moments.covariance,
        "matrix": features.matrix,
        "finite": features.finite,
        "projection": features.pca.projection,
    }


def in_one_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    found = {
        shares: results(rows_of_all().split(shares)[rank], World(rank, 2)) for shares in SHARES
    }
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results_of_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    processes.spawn(in_one_of_two, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("shares", SHARES)
def test_two_processes_measure_as_one_does(results_of_two, shares):
    alone = results(rows_of_all(), World())
    for found in results_of_two:
        assert found[shares]["count"] == 320
        torch.testing.assert_close(found[shares]["mean"], alone["mean"], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(
            found[shares]["covariance"], alone["covariance"], rtol=1e-9, atol=1e-9
        )


@pytest.mark.parametrize("shares", SHARES)
def test_two_processes_whiten_as_one_does(results_of_two, shares):
    alone = results(rows_of_all(), World())
    together = torch.cat([found[shares]["matrix"] for found in results_of_two])
    torch.testing.assert_close(together, alone["matrix"], atol=1e-4, rtol=0)
    first, second = (found[shares] for found in results_of_two)
    assert torch.equal(first["projection"], second["projection"])


@pytest.mark.parametrize("shares", SHARES)
def test_every_process_knows_which_images_have_no_row(results_of_two, shares):
    for found in results_of_two:
        assert (~found[shares]["finite"]).nonzero().flatten().tolist() == [BAD]
