"""The same groups alone and among many processes, whatever share of the rows each one holds."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from deepcluster.clusters import KMeans, PowerIteration
from deepcluster.clusters.gate import checked, fingerprints
from deepcluster.runtime.errors import NumericsError, UsageError
from deepcluster.runtime.world import World

SHARES = ((70, 130), (0, 200), (199, 1))


def rows_of_all():
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(200, 6, generator=source) + 4 * torch.randn(5, 6, generator=source).repeat(
        40, 1
    )
    rows[50:90] = rows[0]  # duplicates on both sides of a border
    return rows


def clusterings():
    far = torch.full((12, 6), 1e4)
    return {
        "k-means": lambda rows, world: KMeans(k=12)(rows, world),
        "many clusters": lambda rows, world: KMeans(k=150, iterations=4)(rows, world),
        "repairs": lambda rows, world: KMeans(k=12)(rows, world, centroids=far),
        "refills": lambda rows, world: KMeans(k=12, iterations=0)(rows, world, centroids=far),
        "far from zero": lambda rows, world: KMeans(k=12)(rows.double() + 1e9, world),
        "paper": lambda rows, world: PowerIteration(sigma="auto")(rows, world),
        "released": lambda rows, world: PowerIteration(
            sigma="auto", update="released", merge_singletons=True
        )(rows, world),
    }


def in_one_of_two(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    world = World(rank, 2)
    results = {}
    for shares in SHARES:
        rows = rows_of_all().split(shares)[rank]
        for name, clustering in clusterings().items():
            results[shares, name] = vars(clustering(rows, world))
    broken = torch.full((3, 2), torch.nan) if rank == 1 else torch.randn(5, 2)
    try:
        KMeans(k=2)(broken, world)
    except NumericsError as error:
        results["error"] = str(error)
    results["shapes"] = []
    for ill in (torch.randn(5), torch.ones(5, 2, dtype=torch.bool), torch.randn(5, 3)):
        try:
            KMeans(k=2)(ill if rank == 1 else torch.randn(5, 2), world)
        except UsageError as error:
            results["shapes"].append(str(error))
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def results_of_two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    processes.spawn(in_one_of_two, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("name", clusterings())
@pytest.mark.parametrize("shares", SHARES)
def test_two_processes_group_as_one_does(results_of_two, shares, name):
    alone = vars(clusterings()[name](rows_of_all(), World()))
    for results in results_of_two:
        both = results[shares, name]
        assert torch.equal(both["labels"], alone["labels"])
        assert torch.equal(both["sizes"], alone["sizes"])
        assert both["count"] == alone["count"]
        assert both["repaired"] == alone["repaired"]
        assert both["objective"] == pytest.approx(alone["objective"])
        for part in ("centroids", "distances", "margins"):
            torch.testing.assert_close(both[part], alone[part])


def test_every_process_hears_of_one_processs_broken_rows(results_of_two):
    for results in results_of_two:
        assert "3 of 8 rows" in results["error"]


def test_no_process_waits_for_one_whose_rows_are_refused(results_of_two):
    first, second = (results["shapes"] for results in results_of_two)
    assert len(first) == len(second) == 3
    assert ["another process" in said for said in first] == [True, True, False]
    assert "(5,) cannot be grouped" in second[0]
    assert "bool" in second[1]
    assert first[2] == second[2]
    assert "different widths: [2, 3]" in first[2]


def test_distinct_rows_are_the_first_of_their_value():
    rows = torch.tensor([[1.0, 0.0], [1.0, -0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    assert checked(rows, World())[1].tolist() == [0, 2, 4]


def test_fingerprints_tell_apart_what_differs():
    grid = torch.cartesian_prod(*[torch.arange(-4.0, 4.0)] * 5)
    assert len(torch.unique(fingerprints(grid))) == len(grid)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", clusterings())
def test_the_gpu_groups_as_the_cpu_does(name):
    device = torch.device("cuda")
    there = vars(clusterings()[name](rows_of_all().to(device), World(device=device)))
    here = vars(clusterings()[name](rows_of_all(), World()))
    assert torch.equal(there["labels"], here["labels"])
    for part in ("centroids", "distances", "margins"):
        torch.testing.assert_close(there[part], here[part])
