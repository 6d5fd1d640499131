"""The processes of one run."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from hypothesis import given
from hypothesis import strategies as st

from deepcluster.runtime.errors import UsageError, WorldError
from deepcluster.runtime.world import World, failures_named, joined


def test_alone_every_reduction_is_the_identity():
    world, rows = World(), torch.arange(6.0).reshape(3, 2)
    assert world.leads
    assert world.sum(rows) is rows
    assert world.gather(rows) is rows
    assert world.broadcast(rows) is rows
    assert world.broadcast_bytes(b"word") == b"word"
    assert world.counts(3) == [3]
    assert world.offset(3) == 0
    assert world.any(True)
    assert not world.any(False)
    assert torch.equal(world.rows_at(rows, torch.tensor([2, 0])), rows[[2, 0]])
    world.wait()


@given(st.integers(0, 10_000), st.integers(1, 64))
def test_the_shares_cover_everything_once_in_order_and_evenly(count, size):
    shares = [World(rank, size).share(count) for rank in range(size)]
    assert [number for share in shares for number in share] == list(range(count))
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1


def test_without_torchrun_a_process_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with joined("cpu") as world:
        assert world == World()


def test_a_device_that_is_none_is_refused():
    with pytest.raises(UsageError, match="--device gpu: use cpu, cuda or auto"), joined("gpu"):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="no CUDA device is visible"), joined("cuda"):
        pass


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[gloo/transport/tcp/pair.cc] Connection closed by peer"),
        RuntimeError("Timed out waiting 600000ms for recv operation"),
        dist.DistBackendError("anything"),
    ],
)
def test_a_broken_connection_is_the_end_of_another_process(error):
    with pytest.raises(WorldError, match="another process of this run"), failures_named():
        raise error


def test_other_errors_keep_their_own_words():
    with pytest.raises(RuntimeError, match="shape mismatch"), failures_named():
        raise RuntimeError("shape mismatch")


def test_alone_nobody_waits():
    with World().others_waiting():
        pass


def slow_leader(rank: int, folder: str, dies: bool) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": Path(folder, "port").read_text()}
    torch.set_num_threads(1)
    with joined("cpu", timeout_minutes=1.5 / 60) as world:
        if rank == 0:
            with world.others_waiting():
                time.sleep(4)  # more than twice as long as they wait for a word
                if dies:
                    os._exit(0)
            world.broadcast_bytes(b"done at last")
            return
        try:
            word = world.heard().decode()
        except WorldError:
            word = "the leader is gone"
        Path(folder, "heard").write_text(word)


@pytest.mark.parametrize(
    ("dies", "expected"), [(False, "done at last"), (True, "the leader is gone")]
)
def test_a_slow_leader_is_waited_for_and_a_dead_one_is_not(tmp_path, dies, expected):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        (tmp_path / "port").write_text(str(free.getsockname()[1]))
    processes.spawn(slow_leader, args=(str(tmp_path), dies), nprocs=2)
    assert (tmp_path / "heard").read_text() == expected


def bits() -> list[torch.Tensor]:
    """Numbers of every size; as floating point, among them minus zero and what is no number."""
    patterns = torch.tensor([0, -(2**63), 0x7FF8DEADBEEF0001, -1, 1])
    return [patterns, patterns[0], patterns[:0], patterns.int(), patterns.short(), patterns > 0]


def in_one_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    world = World(rank, 2)
    rows = [torch.arange(3.0), torch.arange(3.0, 8.0)][rank][:, None]
    mine = torch.tensor([1.0 + rank])
    found = {
        "sum": world.sum(mine),
        "untouched": mine,
        "any": [world.any(rank == 1), world.any(False)],
        "counts": world.counts(len(rows)),
        "offset": world.offset(len(rows)),
        "gather": world.gather(rows),
        "gather one side": world.gather(rows[:0] if rank == 0 else rows),
        "rows_at": world.rows_at(rows, torch.tensor([7, 0, 3, 2, 3])),
        "broadcast": world.broadcast(mine),
        "bits": [world.broadcast(of_kind if rank == 0 else ~of_kind) for of_kind in bits()],
        "bytes": list(world.broadcast_bytes(b"the leader's word" if rank == 0 else b"")),
        "no bytes": list(world.broadcast_bytes(b"")),
    }
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    processes.spawn(in_one_of_two, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def test_two_processes_hear_the_same(two):
    for rank, found in enumerate(two):
        assert found["sum"].tolist() == [3.0]
        assert found["untouched"].tolist() == [1.0 + rank]
        assert found["any"] == [True, False]
        assert found["counts"] == [3, 5]
        assert found["offset"] == 3 * rank
        assert found["gather"].flatten().tolist() == list(range(8))
        assert found["gather one side"].flatten().tolist() == [3, 4, 5, 6, 7]
        assert found["rows_at"].flatten().tolist() == [7, 0, 3, 2, 3]
        assert found["broadcast"].tolist() == [1.0]
        for sent, heard in zip(bits(), found["bits"], strict=True):
            assert (heard.dtype, heard.tolist()) == (sent.dtype, sent.tolist())
        assert bytes(found["bytes"]) == b"the leader's word"
        assert found["no bytes"] == []


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16, torch.uint8])
def test_the_leaders_numbers_come_to_the_last_bit(kind, monkeypatch):
    """Minus zero and the payload of what is no number too."""
    sent = torch.randint(256, (64,), generator=torch.Generator().manual_seed(0)).byte()
    sent[:8] = torch.tensor([0, 0, 0, 0x80, 0, 0, 0, 0x80])
    sent = sent.view(kind)
    added = []
    monkeypatch.setattr(World, "sum", lambda world, bits: added.append(bits) or sum(added))
    World(1, 2).broadcast(torch.full_like(sent, 3))
    heard = World(0, 2).broadcast(sent)
    assert heard.dtype == kind
    assert torch.equal(heard.view(torch.uint8), sent.view(torch.uint8))


def leader_of_one_that_dies(rank: int, folder: str, after: float) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    world, much = World(rank, 2), torch.zeros(2**25)
    world.wait()
    if rank == 1:
        threading.Timer(after, os._exit, (0,)).start()  # in the middle of a transfer, most likely
    begun = time.monotonic()
    try:
        while True:
            world.broadcast(much)
    except WorldError:
        Path(folder, "noticed").write_text(str(time.monotonic() - begun))
    os._exit(0)


@pytest.mark.parametrize("after", [0.2, 0.35, 0.5])
def test_a_leader_with_much_to_say_notices_that_nobody_listens(tmp_path, after):
    """Gloo's own broadcast waits as long as it may, in some of such ends."""
    both = processes.spawn(
        leader_of_one_that_dies, args=(str(tmp_path), after), nprocs=2, join=False
    )
    for process in both.processes:
        process.join(45)
        process.kill()
    assert float((tmp_path / "noticed").read_text()) < 30
