"""What a person has said of the groups: their names, and where images belong instead.

`RUN/explorer.json` has every step in order, so that the last one can be taken back. Neither the
run's own results nor the user's images are ever changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder

FILE = "explorer.json"

Step = Mapping[str, Any]
"""{"name": TEXT, "group": N}, {"move": [ID, ...], "to": N} or {"merge": [N, ...], "to": N}."""


@dataclass(frozen=True)
class Edits:
    """The steps, oldest first, that belong to one grouping of a run."""

    grouping: str
    """The hash of that grouping: the number of a group means nothing in another one."""
    steps: tuple[Step, ...] = ()
    outdated: bool = False
    """Whether the file has the steps of an earlier grouping, which are not these."""

    @staticmethod
    def read(folder: RunFolder) -> Edits:
        """The edits of the run's present grouping; a ResumeError where the file is damaged."""
        path = folder.path / FILE
        grouping = _grouping(folder)
        try:
            found = json.loads(path.read_text())
            steps = tuple(_checked(step) for step in found["steps"])
            outdated = found["grouping"] != grouping
        except FileNotFoundError:
            return Edits(grouping)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResumeError(
                f"{path} cannot be read ({str(error) or type(error).__name__}); put it back, or "
                "delete it and with it the names and moves that were made by hand"
            ) from error
        return Edits(grouping, () if outdated else steps, outdated)

    @property
    def names(self) -> dict[int, str]:
        """The names of the groups that have one."""
        given = {step["group"]: step["name"] for step in self.steps if "name" in step}
        return {group: name for group, name in given.items() if name}

    def applied(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """The group of each image after all moves."""
        moved = labels.copy()
        for step in self.steps:
            if "move" in step:
                images = np.array(step["move"], dtype=np.int64)
                moved[images[images < len(moved)]] = step["to"]
            elif "merge" in step:
                moved[np.isin(moved, step["merge"])] = step["to"]
        return moved

    def and_then(self, step: Step) -> Edits:
        """These and one more."""
        return replace(self, steps=(*self.steps, step))

    def undone(self) -> Edits:
        """These without the last."""
        return replace(self, steps=self.steps[:-1])

    def saved(self, folder: RunFolder) -> Edits:
        """Keep them; the file of an earlier grouping is put aside, not lost."""
        path = folder.path / FILE
        if self.outdated:
            number = sum(1 for _ in folder.path.glob("explorer-*.json")) + 1
            path.replace(path.with_name(f"explorer-{number}.json"))
        content = {"format": 1, "grouping": self.grouping, "steps": self.steps}
        folder.write(FILE, json.dumps(content, separators=(",", ":")) + "\n")
        return replace(self, outdated=False)


def _grouping(folder: RunFolder) -> str:
    """The hash of clusters.parquet as the closing pass left it."""
    try:
        closing = json.loads((folder.path / "closing.json").read_text())
        return str(closing["sha256"]["clusters.parquet"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _checked(step: Any) -> Step:
    """The step, if it is one of ours."""

    def whole(*numbers: Any) -> bool:
        return all(type(number) is int and number >= 0 for number in numbers)

    match step:
        case {"name": str(), "group": group} if whole(group):
            return dict(step)
        case {"move": list(images), "to": group} if whole(group, *images):
            return dict(step)
        case {"merge": list(groups), "to": group} if whole(group, *groups):
            return dict(step)
    raise ValueError(f"{str(step)[:60]} is no step")
