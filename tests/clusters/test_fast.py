"""The kernels against the plain version: under the interpreter, and on a GPU if there is one."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from kernel_child import says_equal

from deepcluster.clusters import KMeans, kmeans
from deepcluster.clusters.rows import Rows
from deepcluster.runtime.errors import PlainSearch
from deepcluster.runtime.world import World

triton = pytest.importorskip("triton", reason="Triton is not installed")

CHECKS = Path(__file__).with_name("kernels_child.py")


def agrees(device: str, **environment: str) -> None:
    says_equal(str(CHECKS), device, **environment)


@pytest.mark.skipif(
    tuple(map(int, triton.__version__.split(".")[:2])) < (3, 8),
    reason="the interpreter of Triton before 3.8 cannot loop to a bound that it has loaded",
)
def test_the_kernels_agree_with_the_plain_version_under_the_interpreter():
    agrees("cpu", TRITON_INTERPRET="1")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernels_agree_with_the_plain_version_on_a_gpu():
    agrees("cuda")


def test_without_a_gpu_the_fast_search_is_the_exact_one():
    rows = torch.randn(200, 8, generator=torch.Generator().manual_seed(0))
    exact, fast = KMeans(k=5)(rows), KMeans(k=5, precision="bfloat16")(rows)
    assert torch.equal(exact.labels, fast.labels)
    assert exact.objective == fast.objective


@pytest.mark.parametrize("fails_elsewhere", [False, True])
def test_all_processes_search_by_kernels_or_none_does(fails_elsewhere, monkeypatch):
    by_kernel = pytest.importorskip("deepcluster.clusters.fast.search_by_kernel")
    monkeypatch.setattr(by_kernel, "SearchByKernel", lambda *about: "by kernels")
    monkeypatch.setattr(kmeans, "ExactSearch", lambda *about: "exactly")
    monkeypatch.setattr(World, "any", lambda world, flag: flag or fails_elsewhere)
    rows = Rows(torch.zeros(0, 4), torch.device("cuda"))  # here there is nothing to fail on
    if fails_elsewhere:
        with pytest.warns(PlainSearch, match="not in another process"):
            assert kmeans._search(rows, "bfloat16", World()) == "exactly"
    else:
        assert kmeans._search(rows, "bfloat16", World()) == "by kernels"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_fast_k_means_reaches_the_exact_objective_and_labels_the_nearest():
    source = torch.Generator().manual_seed(0)
    rows = torch.nn.functional.normalize(torch.randn(20_000, 64, generator=source), dim=1).cuda()
    exact, fast = KMeans(k=100)(rows), KMeans(k=100, precision="bfloat16")(rows)
    assert fast.objective[-1] == pytest.approx(exact.objective[-1], rel=5e-3)
    assert int(fast.sizes.min()) > 0
    distance = torch.cdist(rows.double().cpu(), fast.centroids.double())
    assert torch.equal(distance.argmin(dim=1), fast.labels)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_rows_too_wide_for_the_kernel_are_searched_exactly_and_that_is_said():
    rows = torch.randn(300, 400).cuda()
    with pytest.warns(PlainSearch, match="400 columns"):
        KMeans(k=5, precision="bfloat16")(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlainSearch)
        assert KMeans(k=5)(rows).search == "float32 kernels on cuda"
