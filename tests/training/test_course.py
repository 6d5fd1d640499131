"""Where a run stands, across its end and its continuation."""

import threading
import time

import numpy as np
import pytest
import torch

from deepcluster.runtime.errors import ResumeError, StorageError, WorldError
from deepcluster.runtime.interruption import TERMINATED, Interrupted
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World
from deepcluster.training import checkpoint
from deepcluster.training.checkpoint import CheckpointDamaged
from deepcluster.training.course import Course
from deepcluster.training.epoch import EpochProgress, train_epoch
from deepcluster.training.optimizers import Optimization, momenta

OPTIMIZATION = Optimization(step=0.02, head_momentum=0.5)
LABELS = np.array([0, 1, -1, 1, 0])


@pytest.fixture
def course(tmp_path, tiny):
    """Makes the course of the same run, as each start of the command does."""

    def make(**more) -> Course:
        network = tiny(2)
        return Course(
            RunFolder(tmp_path), network, OPTIMIZATION.for_trunk(network), World(), **more
        )

    return make


def learn(course: Course, batches, head_optimizer, progress=None):
    course.labels = LABELS
    return train_epoch(
        course.network,
        batches,
        (course.optimizer, head_optimizer),
        World(),
        progress=progress or EpochProgress(),
        dropout_stream=(0, 0),
    )


def record(epoch: int, seconds: float = 1.0):
    return {"epoch": epoch, "loss": 0.5, "seconds": {"learn": seconds}}


def same_tensors(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_a_new_run_has_nothing_to_take_up(course):
    new = course()
    assert new.take_up() is None
    assert (new.done, new.labels, new.state_name) == (0, None, "untrained")
    assert new.saved_head(0) is None


def test_a_complete_epoch_is_taken_up(course, stripes):
    before = course()
    learn(before, stripes(2), OPTIMIZATION.for_head(before.network))
    before.complete(0, record(0))
    before.settle()
    after = course()
    assert after.take_up().startswith("continuing after 1 epoch (epoch-0001-step-00000000")
    assert after.done == 1
    assert after.labels.tolist() == LABELS.tolist()
    assert after.labels.dtype == np.int64
    assert after.state_name == before.state_name != "untrained"
    assert same_tensors(after.network.trunk.state_dict(), before.network.trunk.state_dict())
    assert same_tensors(momenta(after.optimizer), momenta(before.optimizer))
    assert after.saved_head(1) is None
    assert after.inside(1, OPTIMIZATION.for_head(after.network)) == (EpochProgress(), {})


def test_a_complete_epoch_leaves_its_labels_and_its_line(course, tmp_path, stripes):
    done = course()
    learn(done, stripes(1), OPTIMIZATION.for_head(done.network))
    done.complete(0, record(0))
    assert np.load(tmp_path / "assignments/epoch-0000.npy").tolist() == LABELS.tolist()
    assert done.folder.journal() == [record(0)]


def test_an_epoch_under_way_goes_on_bit_for_bit(course, stripes):
    whole = course()
    whole_head = OPTIMIZATION.for_head(whole.network)
    expected = learn(whole, stripes(4), whole_head)

    before = course()
    head_optimizer = OPTIMIZATION.for_head(before.network)
    progress = learn(before, stripes(2), head_optimizer)
    before.save_inside(0, head_optimizer, progress, {"clusters": 2})
    before.settle()

    after = course()
    assert "after 0 epochs and 2 steps" in after.take_up()
    after.network.head = after.saved_head(0)
    head_optimizer = OPTIMIZATION.for_head(after.network)
    progress, so_far = after.inside(0, head_optimizer)
    assert so_far == {"clusters": 2}
    assert progress.step == 2
    assert learn(after, stripes(4, first=2), head_optimizer, progress) == expected
    assert same_tensors(after.network.state_dict(), whole.network.state_dict())
    assert same_tensors(momenta(head_optimizer), momenta(whole_head))


def test_what_was_inside_is_used_once(course, stripes):
    before = course()
    head_optimizer = OPTIMIZATION.for_head(before.network)
    before.save_inside(0, head_optimizer, learn(before, stripes(1), head_optimizer), {})
    before.settle()
    after = course()
    after.take_up()
    after.inside(0, OPTIMIZATION.for_head(after.network))
    assert after.saved_head(0) is None


def test_only_the_leading_process_takes_up_the_losses(course, stripes, tiny, tmp_path, monkeypatch):
    before = course()
    head_optimizer = OPTIMIZATION.for_head(before.network)
    before.save_inside(0, head_optimizer, learn(before, stripes(2), head_optimizer), {})
    before.settle()
    monkeypatch.setattr(World, "broadcast_bytes", lambda world, data: data)  # the leader agrees
    monkeypatch.setattr(World, "any", lambda world, flag: flag)
    network = tiny(2)
    other = Course(RunFolder(tmp_path), network, OPTIMIZATION.for_trunk(network), World(1, 2))
    other.take_up()
    progress, _ = other.inside(0, OPTIMIZATION.for_head(network))
    assert progress == EpochProgress(2)


def test_processes_that_find_different_checkpoints_stop(
    course, stripes, tiny, tmp_path, monkeypatch
):
    before = course()
    head_optimizer = OPTIMIZATION.for_head(before.network)
    before.save_inside(0, head_optimizer, learn(before, stripes(2), head_optimizer), {})
    before.settle()
    monkeypatch.setattr(World, "broadcast_bytes", lambda world, data: b"another digest")
    monkeypatch.setattr(World, "any", lambda world, flag: flag)
    network = tiny(2)
    other = Course(RunFolder(tmp_path), network, OPTIMIZATION.for_trunk(network), World(1, 2))
    with pytest.raises(WorldError, match="different checkpoints"):
        other.take_up()


def test_a_process_that_does_not_lead_writes_nothing(tiny, tmp_path, stripes):
    network = tiny(2)
    other = Course(RunFolder(tmp_path), network, OPTIMIZATION.for_trunk(network), World(1, 2))
    head_optimizer = OPTIMIZATION.for_head(network)
    other.labels = LABELS
    other.save_inside(0, head_optimizer, EpochProgress(1), {})
    other.settle()
    assert list(tmp_path.iterdir()) == []


def test_a_line_that_no_checkpoint_vouches_for_is_forgotten(course, stripes):
    before = course()
    learn(before, stripes(1), OPTIMIZATION.for_head(before.network))
    before.complete(0, record(0))
    before.settle()
    before.folder.record(record(1))
    before.folder.write_assignment(1, LABELS)
    after = course()
    after.take_up()
    assert after.folder.journal() == [record(0)]
    assert [path.name for path in (after.folder.path / "assignments").iterdir()] == [
        "epoch-0000.npy"
    ]


def test_after_a_damaged_checkpoint_the_run_stands_where_the_one_before_does(course, stripes):
    before = course()
    learn(before, stripes(1), OPTIMIZATION.for_head(before.network))
    before.complete(0, record(0))
    before.settle()
    before.complete(1, record(1))
    before.settle()
    (before.folder.checkpoints / "epoch-0002-step-00000000" / "state.json").write_text("{}")
    after = course()
    with pytest.warns(CheckpointDamaged, match="epoch-0002"):
        after.take_up()
    assert after.done == 1
    assert after.folder.journal() == [record(0)]
    assert [path.name for path in after.folder.checkpoints.iterdir()] == [
        "epoch-0001-step-00000000"
    ]


def test_another_network_is_refused(course, stripes, tmp_path):
    before = course()
    learn(before, stripes(1), OPTIMIZATION.for_head(before.network))
    before.complete(0, record(0))
    before.settle()
    other = course()
    other.network.trunk.convnet.fc7 = torch.nn.Sequential(torch.nn.Linear(3, 3))
    with pytest.raises(ResumeError, match="does not fit this network"):
        other.take_up()


def test_the_epochs_left_follow_what_is_done(course):
    run = course()
    run.done = 2
    seen = []
    for epoch in run.epochs(until=5):
        seen.append(epoch)
        run.done += 1
    assert seen == [2, 3, 4]


def test_no_epoch_begins_that_the_minutes_given_do_not_hold(course):
    run = course(minutes=1.0)
    run.done = 1
    run.folder.record(record(0, seconds=20.0))
    assert next(run.epochs(until=5), None) == 1  # 20 + 1.5 x 20 is within 60
    run.folder.record(record(1, seconds=20.0))
    assert next(run.epochs(until=5), None) is None


def test_the_first_epoch_is_over_when_only_another_look_fits(course):
    run = course(minutes=1.0)
    assert not run.time_is_over({"look": 10.0, "learn": 39.0})
    assert run.time_is_over({"look": 10.0, "group": 1.0, "learn": 40.0})
    run.done = 1
    assert not run.time_is_over({"look": 10.0, "learn": 500.0})
    assert not course().time_is_over({"look": 1e9})


def test_a_save_is_due_once_in_a_while(course, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run = course(save_minutes=10)
    now[0] += 599
    assert not run.save_is_due()
    now[0] += 2
    assert run.save_is_due()
    assert not run.save_is_due()
    now[0] += 601
    assert run.save_is_due()


def test_any_save_puts_off_the_next(course, stripes, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run = course(save_minutes=10)
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    now[0] += 599
    run.complete(0, record(0))
    run.settle()
    now[0] += 599
    assert not run.save_is_due()


@pytest.fixture
def stuck_disk(monkeypatch):
    """A disk on which no file of a checkpoint is written before the event is set."""
    free, write = threading.Event(), checkpoint._write_synced

    def writing(path, *parts):
        assert free.wait(60)
        return write(path, *parts)

    monkeypatch.setattr(checkpoint, "_write_synced", writing)
    yield free
    free.set()


def saved(run: Course) -> list[str]:
    return sorted(path.name[:10] for path in run.folder.checkpoints.glob("epoch-*"))


def weights(run: Course) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in run.network.trunk.state_dict().items()}


def test_epochs_do_not_wait_for_a_slow_disk_and_the_last_is_saved(course, stripes, stuck_disk):
    run = course()
    for epoch in run.epochs(until=4):
        head_optimizer = OPTIMIZATION.for_head(run.network)
        run.inside(epoch, head_optimizer)
        learn(run, stripes(1), head_optimizer)
        run.complete(epoch, record(epoch))
        assert saved(run) == []  # all of them ended before anything was on the disk
        if epoch == 3:
            stuck_disk.set()  # the end of the epochs waits for the first save
    run.settle()
    assert saved(run) == ["epoch-0001", "epoch-0004"]
    after = course()
    after.take_up()
    assert after.done == 4
    assert after.state_name == run.state_name
    assert same_tensors(after.network.trunk.state_dict(), weights(run))
    assert same_tensors(momenta(after.optimizer), momenta(run.optimizer))


def test_what_is_saved_is_the_network_as_it_was_when_the_epoch_ended(course, stripes, stuck_disk):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    run.complete(0, record(0))
    expected = weights(run)
    head_optimizer = OPTIMIZATION.for_head(run.network)
    run.inside(1, head_optimizer)
    learn(run, stripes(1), head_optimizer)
    assert not same_tensors(weights(run), expected)
    stuck_disk.set()
    run.settle()
    after = course()
    after.take_up()
    assert same_tensors(after.network.trunk.state_dict(), expected)


def test_a_save_left_out_is_not_made_of_a_network_that_has_moved_on(course, stripes, stuck_disk):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    run.complete(0, record(0))
    run.complete(1, record(1))
    run.inside(2, OPTIMIZATION.for_head(run.network))  # learning begins, the disk is still busy
    stuck_disk.set()
    run.settle()
    assert saved(run) == ["epoch-0001"]
    after = course()
    after.take_up()
    assert after.folder.journal() == [record(0)]


def test_a_save_left_out_is_made_before_learning_if_the_disk_is_free_then(
    course, stripes, stuck_disk
):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    run.complete(0, record(0))
    run.complete(1, record(1))
    stuck_disk.set()
    run._checkpoints.wait()
    run.inside(2, OPTIMIZATION.for_head(run.network))
    run.settle()
    assert saved(run) == ["epoch-0001", "epoch-0002"]


def test_no_save_is_left_out_when_there_was_none_for_long(course, stripes, stuck_disk, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    run = course(save_minutes=10)
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    run.complete(0, record(0))
    now[0] += 599
    run.complete(1, record(1))
    assert run._unsaved is not None
    now[0] += 2
    threading.Timer(0.2, stuck_disk.set).start()
    run.complete(2, record(2))
    assert run._unsaved is None
    run.settle()
    assert saved(run) == ["epoch-0001", "epoch-0003"]


def test_a_run_that_stops_before_learning_saves_the_epoch_that_was_left_out(
    course, stripes, stuck_disk
):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    run.complete(0, record(0))
    run.complete(1, record(1))
    run.labels = LABELS[::-1]  # those of the next epoch, not of the one that is done
    stuck_disk.set()
    with pytest.raises(Interrupted), run.kept():
        raise Interrupted(TERMINATED)
    assert saved(run) == ["epoch-0001", "epoch-0002"]
    after = course()
    after.take_up()
    assert after.labels.tolist() == LABELS.tolist()


def test_an_impatient_user_does_not_wait_for_the_disk(course, stripes, stuck_disk):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    run.complete(0, record(0))
    with pytest.raises(KeyboardInterrupt), run.kept():
        raise KeyboardInterrupt
    assert saved(run) == []


def test_a_save_that_failed_is_told_at_the_next_step(course, stripes, fault):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    fault("checkpoint.data:no-space@2")
    run.complete(0, record(0))
    while run._checkpoints.busy:
        time.sleep(0.01)
    with pytest.raises(StorageError, match=r"no space left to write .*epoch-0001"):
        run.save_is_due()
    assert not run.save_is_due()  # said once


def test_a_run_that_could_not_be_saved_does_not_say_that_it_was(course, stripes, fault):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    fault("checkpoint.rename:no-space")
    run.complete(0, record(0))
    with pytest.raises(StorageError, match="no space left"), run.kept():
        raise Interrupted(TERMINATED)


def test_a_failed_save_does_not_take_the_next_epoch_with_it(course, stripes, fault):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    fault("checkpoint.rename:no-space")
    run.complete(0, record(0))
    while run._checkpoints.busy:
        time.sleep(0.01)
    with pytest.raises(StorageError, match="epoch-0001"), run.kept():
        run.complete(1, record(1))
    assert saved(run) == ["epoch-0002"]


def test_a_place_that_cannot_be_written_is_named(course, stripes):
    run = course()
    learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
    run.folder.checkpoints.write_text("no folder")
    run.complete(0, record(0))
    with pytest.raises(StorageError, match=r"cannot write .*epoch-0001.*write to another place"):
        run.settle()


def test_no_two_states_have_one_name(course, stripes):
    names = set()
    for _ in range(2):  # the same epoch again, as after a crash on a device that is not exact
        run = course()
        learn(run, stripes(1), OPTIMIZATION.for_head(run.network))
        run.complete(0, record(0))
        run.settle()
        names.add(run.state_name)
    assert len(names) == 2
