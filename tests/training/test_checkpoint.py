"""A checkpoint is whole or not there."""

import json
import os
import threading
import warnings
from pathlib import Path

import pytest
import torch

from deepcluster.runtime.errors import ResumeError, StorageError
from deepcluster.training.checkpoint import Checkpoint, CheckpointDamaged, Checkpoints


def checkpoint(value: float) -> Checkpoint:
    tensors = {
        "trunk": {"weight": torch.full((3, 2), value), "count": torch.tensor(7)},
        "momentum": {},
        "labels": {"labels": torch.arange(5, dtype=torch.int32)},
    }
    return Checkpoint(tensors, {"epoch": int(value), "step": 0, "record": {"loss": 0.1}})


@pytest.fixture
def two(tmp_path) -> Checkpoints:
    """Checkpoints of which the newest is 2 and the one before 1."""
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    commit(checkpoints, 1, 0, checkpoint(1))
    commit(checkpoints, 2, 0, checkpoint(2))
    return checkpoints


def commit(checkpoints: Checkpoints, epoch: int, step: int, what: Checkpoint) -> None:
    checkpoints.save(epoch, step, what)
    checkpoints.wait()


def newest_folder(checkpoints: Checkpoints) -> Path:
    return checkpoints.folder / "epoch-0002-step-00000000"


def value_of(found: Checkpoint | None) -> float:
    assert found is not None
    return float(found.tensors["trunk"]["weight"][0, 0])


def assert_the_one_before_is_used(checkpoints: Checkpoints) -> None:
    with pytest.warns(CheckpointDamaged, match=r"epoch-0002.* is damaged") as caught:
        assert value_of(checkpoints.newest()) == 1
    assert len(caught) == 1


def test_what_was_saved_is_loaded(two):
    found = two.newest()
    assert found is not None
    expected = checkpoint(2)
    assert found.state == expected.state
    assert found.name == "epoch-0002-step-00000000"
    assert found.tensors.keys() == expected.tensors.keys()
    for name, tensors in expected.tensors.items():
        assert found.tensors[name].keys() == tensors.keys()
        for key, tensor in tensors.items():
            assert torch.equal(found.tensors[name][key], tensor)
            assert found.tensors[name][key].dtype == tensor.dtype


def test_the_digest_names_the_content(tmp_path):
    digests = []
    for folder, value in (("one", 1), ("other", 1), ("third", 2)):
        commit(Checkpoints(tmp_path / folder), 1, 0, checkpoint(value))
        digests.append(Checkpoints(tmp_path / folder).newest().digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_tensor_in_another_layout_keeps_its_values(tmp_path):
    weight = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    what = Checkpoint({"trunk": {"weight": weight, "turned": weight.mT}}, {})
    commit(Checkpoints(tmp_path), 1, 0, what)
    found = Checkpoints(tmp_path).newest()
    assert torch.equal(found.tensors["trunk"]["weight"], weight)
    assert torch.equal(found.tensors["trunk"]["turned"], weight.mT)


def test_safetensors_reads_every_kind_of_number(tmp_path):
    tensors = {
        str(kind): torch.tensor([[1, 0, 1]]).to(kind)
        for kind in reversed((torch.float64, torch.int64, torch.float32, torch.int32))
    }
    tensors |= {
        str(kind): torch.tensor([1, 0, 1]).to(kind)
        for kind in (torch.bool, torch.uint8, torch.float16, torch.bfloat16)
    }
    tensors |= {"one": torch.tensor(3), "none": torch.zeros(0, 2), "\u00e9\n": torch.ones(1)}
    commit(Checkpoints(tmp_path), 1, 0, Checkpoint({"trunk": tensors}, {}))
    found = Checkpoints(tmp_path).newest().tensors["trunk"]
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.fixture
def stuck(monkeypatch):
    """A disk that takes nothing for safe before the event is set."""
    free, fsync = threading.Event(), os.fsync

    def syncing(descriptor: int) -> None:
        assert free.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", syncing)
    yield free
    free.set()


def test_saving_does_not_wait_and_keeps_the_tensors_of_that_moment(tmp_path, stuck):
    checkpoints, what = Checkpoints(tmp_path), checkpoint(1)
    assert not checkpoints.busy
    checkpoints.save(1, 0, what)
    assert checkpoints.busy
    what.tensors["trunk"]["weight"].fill_(7)
    assert [path.name for path in tmp_path.glob("epoch-*")] == []
    stuck.set()
    checkpoints.wait()
    assert not checkpoints.busy
    assert value_of(checkpoints.newest()) == 1


def test_a_save_waits_for_the_one_before(tmp_path, stuck):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, 0, checkpoint(1))
    threading.Timer(0.2, stuck.set).start()
    checkpoints.save(2, 0, checkpoint(2))
    assert (tmp_path / "epoch-0001-step-00000000").is_dir()
    checkpoints.wait()
    assert value_of(checkpoints.newest()) == 2


def test_what_a_save_failed_with_is_raised_by_the_next_and_only_once(two, fault):
    fault("checkpoint.manifest:no-space")
    two.save(3, 0, checkpoint(3))
    with pytest.raises(StorageError, match="epoch-0003"):
        two.save(4, 0, checkpoint(4))
    two.wait()
    commit(two, 5, 0, checkpoint(5))
    assert value_of(two.newest()) == 5


def test_a_checkpoint_without_tensors_keeps_its_state(tmp_path):
    commit(Checkpoints(tmp_path), 1, 0, Checkpoint({}, {"epoch": 1}))
    assert Checkpoints(tmp_path).newest().state == {"epoch": 1}


def test_no_checkpoint_is_no_error(tmp_path):
    assert Checkpoints(tmp_path / "none").newest() is None


def test_steps_inside_an_epoch_come_after_its_beginning(two):
    commit(two, 2, 30, checkpoint(3))
    commit(two, 2, 4, checkpoint(4))
    assert value_of(two.newest()) == 3


def test_only_the_newest_are_kept(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for epoch in range(6):
        commit(checkpoints, epoch, 0, checkpoint(epoch))
    assert sorted(path.name[:10] for path in tmp_path.iterdir()) == [
        "epoch-0003",
        "epoch-0004",
        "epoch-0005",
    ]


def test_checkpoints_of_a_course_not_taken_are_dropped(two):
    commit(two, 2, 9, checkpoint(3))
    two.drop_after("epoch-0002-step-00000000")
    assert value_of(two.newest()) == 2


def test_a_damaged_one_is_replaced(two):
    (newest_folder(two) / "state.json").write_text("{}")
    commit(two, 2, 0, checkpoint(5))
    assert value_of(two.newest()) == 5


FILES = ["MANIFEST.json", "state.json", "trunk.safetensors", "momentum.safetensors"]


@pytest.mark.parametrize("file", [*FILES, "labels.safetensors"])
def test_a_file_that_is_cut_or_missing_is_noticed(two, file):
    path = newest_folder(two) / file
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert_the_one_before_is_used(two)
    path.write_bytes(b"")
    assert_the_one_before_is_used(two)
    path.unlink()
    assert_the_one_before_is_used(two)


@pytest.mark.parametrize("file", FILES)
def test_every_flipped_bit_is_noticed(two, file):
    path = newest_folder(two) / file
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        assert_the_one_before_is_used(two)
    path.write_bytes(content)
    assert value_of(two.newest()) == 2


@pytest.mark.parametrize(
    "manifest",
    [
        b"\xff\x00garbage",
        b"[]",
        b"null",
        b'{"format": 1}',
        b'{"format": 1, "sha256": {}}',
        b'{"format": 1, "sha256": [1]}',
        b'{"format": 2, "sha256": {}}',
    ],
)
def test_a_manifest_that_is_none_is_noticed(two, manifest):
    (newest_folder(two) / "MANIFEST.json").write_bytes(manifest)
    assert_the_one_before_is_used(two)


@pytest.mark.parametrize("name", ["../x", "{folder}/x", "..", "", "inside/../state.json"])
def test_a_manifest_may_not_name_files_elsewhere(two, name):
    newest = newest_folder(two)
    (newest / "inside").mkdir()
    path = newest / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    (two.folder / "x").write_bytes((newest / "state.json").read_bytes())  # its hash is right
    manifest["sha256"][name.format(folder=two.folder)] = manifest["sha256"]["state.json"]
    path.write_text(json.dumps(manifest))
    assert_the_one_before_is_used(two)


def test_a_file_that_no_manifest_vouches_for_is_not_read(two):
    (newest_folder(two) / "extra.safetensors").write_bytes(b"anything")
    found = two.newest()
    assert value_of(found) == 2
    assert "extra" not in found.tensors


def test_none_whole_is_refused(two):
    for folder in two.folder.iterdir():
        (folder / "state.json").unlink()
    with pytest.warns(CheckpointDamaged), pytest.raises(ResumeError, match="none of the 2"):
        two.newest()


@pytest.mark.parametrize(
    "point", ["checkpoint.open", "checkpoint.data", "checkpoint.manifest", "checkpoint.rename"]
)
def test_no_space_at_any_point_loses_nothing_and_is_named(two, fault, point):
    fault(f"{point}:no-space")
    with pytest.raises(StorageError, match=r"no space left to write .*epoch-0003"):
        commit(two, 3, 0, checkpoint(3))
    fault("")
    assert value_of(two.newest()) == 2
    assert len(list(two.folder.iterdir())) == 2
    commit(two, 3, 0, checkpoint(3))
    assert value_of(two.newest()) == 3


class PowerLossError(Exception):
    pass


@pytest.mark.parametrize("writes", range(5))
def test_an_end_between_two_writes_leaves_the_one_before(two, monkeypatch, writes):
    done = []

    def sync(descriptor: int) -> None:
        if len(done) == writes:
            raise PowerLossError
        done.append(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(PowerLossError):
        commit(two, 3, 0, checkpoint(3))
    monkeypatch.undo()
    assert any(path.name.startswith(".writing") for path in two.folder.iterdir())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert value_of(two.newest()) == 2
    assert sorted(path.name[:10] for path in two.folder.iterdir()) == ["epoch-0001", "epoch-0002"]


def test_every_file_is_synced_before_the_manifest_and_the_manifest_before_the_rename(
    tmp_path, monkeypatch
):
    happened = []
    fsync, replace = os.fsync, Path.replace

    def syncing(descriptor: int) -> None:
        happened.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    def renaming(path: Path, target: Path) -> Path:
        happened.append(f"rename {path.name} to {target.name}")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "replace", renaming)
    commit(Checkpoints(tmp_path), 1, 0, checkpoint(1))
    name = "epoch-0001-step-00000000"
    *files, manifest, aside, rename, folder = happened
    assert sorted(files) == [
        "labels.safetensors",
        "momentum.safetensors",
        "state.json",
        "trunk.safetensors",
    ]
    assert manifest == "MANIFEST.json"
    assert aside == f".writing-{name}"
    assert rename == f"rename .writing-{name} to {name}"
    assert folder == tmp_path.name


def test_older_ones_stay_until_the_new_one_has_been_read_back(two, monkeypatch):
    replace = Path.replace

    def damaging(path: Path, target: Path) -> Path:
        there = replace(path, target)
        (there / "trunk.safetensors").write_bytes(b"lost by the disk")
        return there

    monkeypatch.setattr(Path, "replace", damaging)
    with pytest.raises(ResumeError, match="damaged"):
        commit(two, 3, 0, checkpoint(3))
    monkeypatch.undo()
    with pytest.warns(CheckpointDamaged, match="epoch-0003"):
        assert value_of(two.newest()) == 2
