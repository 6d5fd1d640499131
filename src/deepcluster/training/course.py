"""The course of a run: the epochs still to do, and what is saved on the way.

A checkpoint after every epoch, unless the disk is still busy with the one before; and, when the run
is asked to stop and every ten minutes, one inside the epoch, with the labels, the head, both
optimizers and the step, so that a resumed run does not redo the epoch. A head that outlives its
epoch is kept after every epoch, too.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import SGD

from deepcluster.networks import Network
from deepcluster.runtime.errors import ResumeError, WorldError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World
from deepcluster.training.checkpoint import Checkpoint, Checkpoints
from deepcluster.training.epoch import EpochProgress
from deepcluster.training.optimizers import momenta, restore_momenta
from deepcluster.training.schedule import epochs_that_fit, part_of_schedule


class Course:
    """Where a run stands. Only the leading process writes; all read the same."""

    def __init__(
        self,
        folder: RunFolder,
        network: Network,
        optimizer: SGD,
        world: World,
        *,
        save_minutes: float = 10,
        keep: int = 2,
        minutes: float | None = None,
        keeps_head: bool = False,
    ) -> None:
        self.folder, self.network, self.optimizer, self.world = folder, network, optimizer, world
        self.done = 0
        self.labels: NDArray[np.int64] | None = None  # of the newest clustering
        self.state_name = "untrained"  # no other state of the network has it, in any run
        self.keeps_head = keeps_head
        self.head_momenta: Mapping[str, Tensor] = {}  # that the head begins the next epoch with
        self._checkpoints = Checkpoints(folder.checkpoints, keep)
        self._inside: Checkpoint | None = None
        self._unsaved: Checkpoint | None = None  # the last epoch's end, until the trunk moves on
        self._save_seconds = save_minutes * 60
        self._minutes = minutes
        self._saved_at = time.monotonic()

    def take_up(self) -> str | None:
        """Continue from the newest whole checkpoint; gives a sentence about it, if there is one."""
        found = self._checkpoints.newest()
        self._agree_on(found)  # and nobody still reads when the leading process tidies up
        self.done = 0 if found is None else int(found.state["epoch"])
        if self.world.leads:
            self.folder.forget_after(self.done)
            self._checkpoints.drop_after("" if found is None else found.name)
        if found is None:
            return None
        self.labels = found.tensors["labels"]["labels"].numpy().astype(np.int64)
        _load(self.network.trunk, found, "trunk")
        restore_momenta(self.optimizer, found.tensors["trunk_momentum"])
        if found.state["step"]:
            self._inside = found
        else:
            self.state_name = found.state.get("name", found.digest)
            if self.keeps_head:
                self.network.head = _head_of(found).to(self.world.device)
                self.head_momenta = found.tensors["head_momentum"]
        step = found.state["step"]
        where = f"{self.done} epoch{'' if self.done == 1 else 's'}"
        where += f" and {step} step{'' if step == 1 else 's'}" if step else ""
        before = found.state["processes"]
        changed = (
            f"; {before} processes then, {self.world.size} now: the same draws and crops, but "
            "batch norm and dropout see other shares of a batch"
            if before != self.world.size
            else ""
        )
        return f"continuing after {where} ({found.name}, verified){changed}"

    def _agree_on(self, found: Checkpoint | None) -> None:
        mine = b"nothing" if found is None else found.digest.encode()
        if self.world.any(self.world.broadcast_bytes(mine) != mine):
            raise WorldError(
                f"the processes find different checkpoints in {self.folder.path}; "
                "it must be one folder that all of them see"
            )

    def epochs(self, until: int) -> Iterator[int]:
        """The epochs still to do, counted from 0; fewer when the time given is used up."""
        while self.done < until and not self._out_of_time():
            yield self.done
        self._save_unsaved()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """While open, nothing but an impatient Ctrl-C ends the run before it is saved."""
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.settle()
            raise

    def settle(self) -> None:
        """Return when all that is done is on the disk."""
        self._save_unsaved()
        self._checkpoints.wait()

    def inside(self, epoch: int, head_optimizer: SGD) -> tuple[EpochProgress, dict[str, Any]]:
        """How far training has come in this epoch, and what is to be recorded about it so far.

        From here on the trunk changes: the last epoch's end is saved now, or not any more.
        """
        if not self._checkpoints.busy:
            self._save_unsaved()
        self._unsaved = None
        found, self._inside = self._inside, None
        if found is None or found.state["epoch"] != epoch:
            return EpochProgress(), {}
        restore_momenta(head_optimizer, found.tensors.get("head_momentum", {}))
        state = found.state
        if not self.world.leads:  # each process sums its own images' losses; one was saved
            return EpochProgress(state["step"]), state["record"]
        sums = state["loss_sum"], state["images"], state["right"]
        return EpochProgress(state["step"], *sums), state["record"]

    def saved_head(self, epoch: int) -> nn.Linear | None:
        """The head that a save inside this epoch kept, if there is one."""
        if self._inside is None or self._inside.state["epoch"] != epoch:
            return None
        return _head_of(self._inside)

    def part_of_schedule(self, until: int) -> tuple[float, float]:
        """From which share of the schedule to which the next epoch leads; the same for all."""
        part = part_of_schedule(self.folder.journal(), until, self._minutes)
        begin, end = self.world.broadcast(torch.tensor(part, dtype=torch.float64)).tolist()
        return begin, end

    def save_is_due(self) -> bool:
        """Whether ten minutes have passed since the last save; then the next ten begin.

        Raises what a save has failed with in the meantime.
        """
        if not self._checkpoints.busy:
            self._checkpoints.wait()
        if not self._is_overdue():
            return False
        self._saved_at = time.monotonic()
        return True

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._saved_at > self._save_seconds

    def save_inside(
        self, epoch: int, head_optimizer: SGD, progress: EpochProgress, record: dict[str, Any]
    ) -> None:
        """Keep an epoch under way. Needs no other process."""
        state = {
            "step": progress.step,
            "loss_sum": progress.loss_sum,
            "images": progress.images,
            "right": progress.right,
            "record": record,
        }
        self._save(self._checkpoint(epoch, state, self._head_tensors(momenta(head_optimizer))))

    def complete(self, epoch: int, record: dict[str, Any]) -> None:
        """Keep an epoch that is done, with its line in the journal.

        While the disk is busy with an earlier one it is saved only if the run stops before the
        trunk changes, or if nothing was saved for long: short epochs do not wait for the disk.
        """
        assert self.labels is not None
        self.done = epoch + 1
        if self.world.leads:
            self.folder.write_assignment(epoch, self.labels)
            self.folder.record(record)
        # All processes name the state alike: an interrupted pass is taken up by all or none.
        self.state_name = self.world.broadcast_bytes(secrets.token_bytes(16)).hex()
        head = self._head_tensors(self.head_momenta) if self.keeps_head else {}
        self._unsaved = self._checkpoint(self.done, {"step": 0, "name": self.state_name}, head)
        if not self._checkpoints.busy or self._is_overdue():
            self._save_unsaved()

    def _head_tensors(self, momentum: Mapping[str, Tensor]) -> dict[str, Mapping[str, Tensor]]:
        return {"head": self.network.head.state_dict(), "head_momentum": momentum}

    def _checkpoint(self, epoch: int, state: dict[str, Any], more: dict[str, Any]) -> Checkpoint:
        """What is to be saved; its tensors are the network's own, not yet copies."""
        assert self.labels is not None
        tensors = {
            "trunk": self.network.trunk.state_dict(),
            "trunk_momentum": momenta(self.optimizer),
            "labels": {"labels": torch.from_numpy(self.labels.astype(np.int32))},
            **more,
        }
        about = {"epoch": epoch, "processes": self.world.size, "torch": torch.__version__}
        return Checkpoint(tensors, {**about, **state})

    def _save_unsaved(self) -> None:
        if self._unsaved is not None:
            self._save(self._unsaved)
            self._unsaved = None

    def _save(self, checkpoint: Checkpoint) -> None:
        self._saved_at = time.monotonic()
        if self.world.leads:
            self._checkpoints.save(checkpoint.state["epoch"], checkpoint.state["step"], checkpoint)

    def time_is_over(self, seconds: Mapping[str, float]) -> bool:
        """Whether the first epoch must end for the closing pass to end within the minutes given.

        Of the others none begins that does not fit.

        Args:
            seconds: That the epoch has taken so far, by phase; the closing pass looks once more.
        """
        if self._minutes is None or self.done:
            return False
        return self.world.any(sum(seconds.values()) + seconds.get("look", 0.0) > 60 * self._minutes)

    def _out_of_time(self) -> bool:
        """Whether another epoch, and a closing pass, would outlast the minutes given."""
        late = False
        if self._minutes is not None and self.world.leads and self.done:
            late = epochs_that_fit(self.folder.journal(), self._minutes) < 1
        return self.world.any(late)


def _head_of(found: Checkpoint) -> nn.Linear:
    weight = found.tensors["head"]["weight"]
    head = nn.utils.skip_init(nn.Linear, weight.shape[1], weight.shape[0])
    _load(head, found, "head")
    return head


def _load(module: nn.Module, found: Checkpoint, name: str) -> None:
    try:
        module.load_state_dict(found.tensors[name])
    except (RuntimeError, KeyError) as error:
        raise ResumeError(
            f"checkpoint {found.name} does not fit this network ({str(error).splitlines()[0]})"
        ) from error
