"""Raw features between the pass over the images and the whitening."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepcluster.features import Looking, Whitening, extract
from deepcluster.features.raw_rows import RawRows, chosen_place
from deepcluster.runtime import faults, interruption
from deepcluster.runtime.errors import StorageError
from deepcluster.runtime.interruption import Interrupted
from deepcluster.runtime.world import World

ALONE = World()
CPU = torch.device("cpu")


def kept(rows: torch.Tensor, batch: int = 64) -> RawRows:
    raw = RawRows(len(rows), rows.shape[1], "device", CPU)
    raw.set_frame(rows[:batch], ALONE)
    for block in rows.split(batch):
        raw.append(block)
    return raw


def read_back(raw: RawRows) -> torch.Tensor:
    """The rows as the network gave them, up to rounding."""
    blocks = torch.cat(list(raw.blocks()))
    return blocks.double() * raw.scale.double() + raw.centre.double()


@pytest.mark.parametrize("mean", [0.0, 1e3, 1e4, 1e6])
def test_a_common_mean_costs_no_digits(mixed_rows, mean):
    rows = mixed_rows(300, 8, mean)
    spread = rows.double().std()
    error = (read_back(kept(rows)) - rows.double()).abs().max()
    assert error < 0.01 * spread  # float16 alone would be off by 4 spreads at a mean of 1e4


def test_first_rows_that_are_all_alike_do_not_cut_the_others(mixed_rows):
    rows = mixed_rows(300, 8, mean=10.0)
    rows[:64] = rows[0] + 1e-7 * rows[:64]
    error = (read_back(kept(rows)) - rows.double()).abs().max()
    assert error < 0.02


def test_first_rows_that_are_equal_do_not_harm(mixed_rows):
    rows = mixed_rows(300, 8)
    rows[:64] = 0
    assert (read_back(kept(rows)) - rows.double()).abs().max() < 0.02


def test_first_rows_that_are_not_finite_do_not_harm(mixed_rows):
    rows = mixed_rows(300, 8)
    rows[:64] = torch.nan
    back = read_back(kept(rows))
    assert bool(back[:64].isnan().all())
    assert (back[64:] - rows[64:].double()).abs().max() < 0.02


def test_a_row_with_one_bad_number_is_bad_as_a_whole():
    rows = torch.ones(3, 4)
    rows[1, 2] = torch.inf
    assert read_back(kept(rows)).isfinite().all(dim=1).tolist() == [True, False, True]


def test_a_row_that_is_too_large_is_cut_and_stays_finite(mixed_rows):
    rows = mixed_rows(100, 4)
    rows[99] = 3e38
    assert bool(torch.cat(list(kept(rows).blocks())).isfinite().all())


def features_of(lookup, rows, folder, keep, **more):
    trunk, images = lookup(rows)
    how = Looking(batch=50, keep=keep, scratch=folder, key="now", **more)
    return Whitening(8)(extract(trunk, images, ALONE, how), ALONE)


def test_a_file_gives_the_same_features_as_the_device(lookup, mixed_rows, tmp_path):
    rows = mixed_rows(330, 12, mean=20.0)
    on_device = features_of(lookup, rows, tmp_path, "device")
    in_file = features_of(lookup, rows, tmp_path, "file")
    assert torch.equal(in_file.matrix, on_device.matrix)
    assert torch.equal(in_file.pca.projection, on_device.pca.projection)
    assert torch.equal(in_file.pca.mean, on_device.pca.mean)


def test_recomputed_features_are_the_same_up_to_rounding(lookup, mixed_rows, tmp_path):
    rows = mixed_rows(330, 12, mean=20.0)
    on_device = features_of(lookup, rows, tmp_path, "device")
    again = features_of(lookup, rows, tmp_path, "recompute")
    torch.testing.assert_close(again.matrix, on_device.matrix, atol=0.01, rtol=0)
    torch.testing.assert_close(again.pca.mean, on_device.pca.mean, atol=0.01, rtol=0)


def test_every_way_sees_every_image_in_order(lookup, tmp_path):
    rows = torch.arange(330.0)[:, None].repeat(1, 2)
    for keep in ("device", "file", "recompute"):
        trunk, images = lookup(rows)
        raw = extract(trunk, images, ALONE, Looking(batch=50, keep=keep, scratch=tmp_path)).rows
        blocks = torch.cat(list(raw.blocks())) * raw.scale + raw.centre
        assert blocks[:, 0].round().long().tolist() == list(range(330)), keep


@pytest.fixture
def asked_at_batch(monkeypatch):
    """A network's hook that asks the run to stop while it looks at the given batch."""

    def at(wanted: int):
        def hook(batch: int) -> None:
            if batch == wanted:
                monkeypatch.setattr(interruption, "_asked", interruption.TERMINATED)

        return hook

    yield at
    monkeypatch.setattr(interruption, "_asked", None)


def interrupted_pass(lookup, rows, folder, hook, monkeypatch, key="now"):
    """Make a pass that is interrupted; gives the place of its file."""
    trunk, images = lookup(rows, hook)
    with pytest.raises(Interrupted):
        extract(trunk, images, ALONE, Looking(batch=50, keep="file", scratch=folder, key=key))
    monkeypatch.setattr(interruption, "_asked", None)
    return folder / "features-0-of-1.f16"


def continued(lookup, rows, folder, key="now"):
    """A later pass over the same images: its features, and how many batches it looked at."""
    trunk, images = lookup(rows)
    how = Looking(batch=50, keep="file", scratch=folder, key=key)
    features = Whitening(8)(extract(trunk, images, ALONE, how), ALONE)
    return features, trunk.batches


def test_an_interrupted_pass_continues_bit_for_bit(
    lookup, mixed_rows, tmp_path, asked_at_batch, monkeypatch
):
    rows = mixed_rows(330, 12, mean=20.0)
    whole = features_of(lookup, rows, tmp_path / "whole", "file")
    interrupted_pass(lookup, rows, tmp_path, asked_at_batch(3), monkeypatch)
    features, batches = continued(lookup, rows, tmp_path)
    assert batches == 4  # of seven
    assert torch.equal(features.matrix, whole.matrix)
    assert torch.equal(features.pca.projection, whole.pca.projection)


def test_rows_after_the_note_are_looked_at_again(lookup, mixed_rows, tmp_path):
    rows = mixed_rows(330, 12)

    def fail_at_five(batch: int) -> None:
        if batch == 5:
            raise MemoryError

    due = iter([False, True, False, False])
    trunk, images = lookup(rows, fail_at_five)
    how = Looking(batch=50, keep="file", scratch=tmp_path, key="now", due=lambda: next(due))
    with pytest.raises(MemoryError):
        extract(trunk, images, ALONE, how)
    features, batches = continued(lookup, rows, tmp_path)
    assert batches == 5  # two of seven were noted
    assert torch.equal(features.matrix, features_of(lookup, rows, None, "device").matrix)


def test_a_finished_pass_is_not_made_again(lookup, mixed_rows, tmp_path):
    rows = mixed_rows(330, 12)
    first, batches_at_first = continued(lookup, rows, tmp_path)
    second, batches = continued(lookup, rows, tmp_path)
    assert (batches_at_first, batches) == (7, 0)
    assert torch.equal(first.matrix, second.matrix)


def cut_the_file(path):
    path.write_bytes(path.read_bytes()[:-2])


def remove_the_file(path):
    path.unlink()


def cut_the_note(path):
    note = path.with_suffix(".safetensors")
    note.write_bytes(note.read_bytes()[:-1])


def another_shape(path):
    note = path.with_suffix(".safetensors")
    about = {"key": "now", "done": "150", "shape": json.dumps([331, 12])}
    save_file(load_file(note), note, metadata=about)


def no_metadata(path):
    note = path.with_suffix(".safetensors")
    save_file(load_file(note), note, metadata={"key": "now"})


@pytest.mark.parametrize(
    "harm", [cut_the_file, remove_the_file, cut_the_note, another_shape, no_metadata]
)
def test_a_note_that_does_not_fit_is_not_used(
    lookup, mixed_rows, tmp_path, asked_at_batch, monkeypatch, harm
):
    rows = mixed_rows(330, 12)
    harm(interrupted_pass(lookup, rows, tmp_path, asked_at_batch(3), monkeypatch))
    features, batches = continued(lookup, rows, tmp_path)
    assert batches == 7
    assert torch.equal(features.matrix, features_of(lookup, rows, None, "device").matrix)


def test_rows_of_another_network_are_not_used(
    lookup, mixed_rows, tmp_path, asked_at_batch, monkeypatch
):
    rows = mixed_rows(330, 12)
    interrupted_pass(lookup, rows + 1, tmp_path, asked_at_batch(3), monkeypatch, key="before")
    features, batches = continued(lookup, rows, tmp_path)
    assert batches == 7
    assert torch.equal(features.matrix, features_of(lookup, rows, None, "device").matrix)


def test_an_old_note_does_not_vouch_for_a_file_begun_anew(
    lookup, mixed_rows, tmp_path, asked_at_batch, monkeypatch
):
    rows = mixed_rows(330, 12)
    remove_the_file(interrupted_pass(lookup, rows, tmp_path, asked_at_batch(3), monkeypatch))
    RawRows(330, 12, "file", CPU, path=tmp_path / "features-0-of-1.f16", key="now")  # and dies
    features, batches = continued(lookup, rows, tmp_path)
    assert batches == 7
    assert torch.equal(features.matrix, features_of(lookup, rows, None, "device").matrix)


def test_a_recomputed_pass_stops_when_asked(lookup, mixed_rows, asked_at_batch):
    trunk, images = lookup(mixed_rows(330, 12), asked_at_batch(3))
    with pytest.raises(Interrupted):
        extract(trunk, images, ALONE, Looking(batch=50, keep="recompute"))
    assert trunk.batches == 3


def test_no_space_is_named(lookup, mixed_rows, tmp_path):
    faults.ask("features.flush:no-space")
    try:
        with pytest.raises(StorageError, match=r"no space left to write .*f16"):
            features_of(lookup, mixed_rows(100, 12), tmp_path, "file")
    finally:
        faults.ask("")


def test_no_rows_can_be_kept_in_a_file(tmp_path):
    raw = RawRows(0, 4, "file", CPU, path=tmp_path / "none.f16", key="now")
    raw.flush()
    assert list(raw.blocks()) == []


def test_a_host_keeps_rows_in_a_file_where_there_is_room(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("shutil.disk_usage", lambda place: usage)
    assert chosen_place("auto", 10, 10, CPU, tmp_path) == "file"
    assert chosen_place("auto", 100, 10, CPU, tmp_path) == "recompute"
    assert chosen_place("auto", 100, 10, CPU, None) == "device"
    assert chosen_place("device", 100, 10, CPU, tmp_path) == "device"
