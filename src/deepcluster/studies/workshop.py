"""Where the rows of a study are trained and judged, one after another.

Every part that is done is a file, and is not done again: the same command goes on.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from deepcluster.evaluation import record
from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.labelled_images import LabelledImages, remarks_on, said_of_both
from deepcluster.evaluation.shelf import Shelf
from deepcluster.evaluation.transfer import Contender, Material, Stages
from deepcluster.runtime.display import Display
from deepcluster.runtime.durations import duration
from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.settings import Run
from deepcluster.studies.loans import borrow_regions
from deepcluster.studies.parts import Part, Parts, Seen, slug
from deepcluster.studies.row_networks import RowNetworks
from deepcluster.studies.study import BY_TASK, Judge, Measured, Results, Row
from deepcluster.studies.task_images import what_changed
from deepcluster.studies.tasks import Task
from deepcluster.studies.terms import Data, Terms
from deepcluster.studies.tuning import Tuning

_KNOWN = "step and decay of its probes on {} were chosen by images whose classes it had learnt"

_FLAGS = re.compile(r" \(--[^()]*\)")
_DRAWN = "its filters are drawn; the recipe begins with filters from patches"


@dataclass(frozen=True)
class Workshop:
    """A folder in which a study is carried out."""

    out: Path
    terms: Terms
    bench: Bench
    judge: Judge = "linear"
    networks_of: tuple[Path, ...] = ()
    """Folders of other studies; what they have trained and judged the same way is taken over."""
    shelf: Shelf = field(default_factory=Shelf)
    """What was read for a row, or said, for the next one."""
    only_done: bool = False
    """Whether a row of which something is not done is refused, and not done now."""

    @property
    def _parts(self) -> Parts:
        return Parts(self.out, self.networks_of, self.bench, self.only_done, self.shelf)

    @property
    def _networks(self) -> RowNetworks:
        return RowNetworks(self._parts, self.terms, self.judge)

    def carry_out(self, rows: list[Row], only: Collection[str] = ()) -> Results:
        """Train and judge every row with every seed of its.

        Args:
            rows: In the order of the table.
            only: The names of those that are asked for, if not all; of the others, the results
                have those that are done already.
        """
        asked = [row for row in rows if not only or row.name in only]
        for row in asked:
            # Now, not after hours of other rows.
            self._networks.refuse_adopted(row)
            Tuning(self._networks).refuse_impossible(row, rows)
        if self.judge == "transfer" and self.bench.world.leads:
            borrow_regions(self._parts)
        total = sum(len(self._seeds(row)) for row in asked)
        settled: list[Row] = []
        measured: list[Measured] = []
        begun = 0
        for row in rows:
            if row not in asked:
                if (found := self._done_before(row, settled)) is not None:
                    self.bench.display.say(f"{row.name}: done before")
                    settled.append(found[0])
                    measured += found[1]
                continue
            settled.append(self._settled(row, settled))
            first: Measured | None = None
            for seed in self._seeds(row):
                begun += 1
                title = f"[{begun}/{total}] {row.name}, seed {seed}"
                self.bench.display.say(title, style="bold")
                measured.append(self._measured(settled[-1], seed, first))
                first = first or measured[-1]
        return Results(tuple(settled), tuple(measured))

    def with_done(self, results: Results, tasks: Iterable[Task]) -> Results:
        """The results, and those of more tasks in which every row of them has been judged before.

        Args:
            results: Of the tasks that were asked for.
            tasks: All that there are.
        """
        for task in tasks:
            if task in self.terms.tasks:
                continue
            if (measured := self._done_by_all(results, task)) is not None:
                self.bench.display.say(f"{task.name}: done before")
                results = replace(results, measured=measured)
        return results

    def _done_by_all(self, results: Results, task: Task) -> tuple[Measured, ...] | None:
        """The same with one task more; None unless it is done for all, with these settings."""
        back = self._looking_back()
        rows = {row.name: row for row in results.rows}
        first: dict[str, Measured] = {}
        measured: list[Measured] = []
        try:
            for one in results.measured:
                row = rows[one.row]
                run = replace(row.run, seed=one.seed)
                part = back._transferred(row, run, task, first.get(one.row))
                measured.append(replace(one, judged={**one.judged, task.name: part}))
                first.setdefault(one.row, measured[-1])
        except ResumeError:
            return None
        return tuple(measured)

    def _looking_back(self) -> Workshop:
        """The workshop as it was, where nothing more is done and nothing is said."""
        quiet = replace(self.bench, display=Display(speaks=False))
        return replace(self, bench=quiet, networks_of=(), only_done=True)

    def _done_before(self, row: Row, before: list[Row]) -> tuple[Row, list[Measured]] | None:
        """What the row came to earlier; None unless all of it is there, with these settings."""
        back = self._looking_back()
        measured: list[Measured] = []
        try:
            row = back._settled(row, before)
            for seed in self._seeds(row):
                measured.append(back._measured(row, seed, measured[0] if measured else None))
        except ResumeError:
            return None
        return row, measured

    def _seeds(self, row: Row) -> tuple[int, ...]:
        return tuple(row.adopted) or self.terms.seeds[: None if row.every_seed else 1]

    def _measured(self, row: Row, seed: int, first: Measured | None = None) -> Measured:
        """Train and judge a row with a seed; its first seed chooses what tasks let choose."""
        run = replace(row.run, seed=seed)
        training = self._networks.trained(row, run) if row.trained else None
        judged: dict[str, dict[str, Any]] = {}
        if self.judge not in BY_TASK:
            judged |= {data.name: self._judged(row, run, data) for data in self.terms.data}
        judged |= {task.name: self._transferred(row, run, task, first) for task in self.terms.tasks}
        own = row.trained and not row.adopted
        if own and row.continues is None and self.bench.world.leads:
            # The network is kept; what only going on would need takes twice its room.
            shutil.rmtree(self._networks.folder(row, seed).checkpoints, ignore_errors=True)
        return Measured(row.name, seed, judged, training)

    def _judged(self, row: Row, run: Run, data: Data) -> dict[str, Any]:
        """What the probe says of the row's network on some labelled images."""
        networks = self._networks
        probe = self.terms.mlp if self.judge == "mlp" else self.terms.probe
        own = data == self.terms.data[0] and self.judge == "linear"
        given = {"choices": row.choices} if own and row.choices is not None else {}

        def by_the_probe() -> dict[str, Any]:
            network = networks.subject(row, run).network
            images, test = (networks.opened(place, run) for place in (data.train, data.test))
            self.shelf(("said", data), lambda: self._say_in_both(data, images, test))
            result = probe(network, images, test, self.bench, **given)
            self.bench.display.say(
                f"  on {data.name}: "
                + ", ".join(f"{name} {100 * top1:.1f}" for name, top1 in result.top1().items())
                + f" ({duration(result.seconds['all'])})"
            )
            few = remarks_on({"train": images.described(), "test": test.described()})
            remarks = self._said([*result.remarks, *few])
            about = {"train": images.fingerprint, "test": test.fingerprint}
            return {
                "data": {"name": data.name, **about},
                "result": asdict(result),
                "remarks": remarks,
            }

        def seen(done: Part) -> Seen:
            about = done.get("data", {})
            return {data.train: about.get("train"), data.test: about.get("test")}

        wanted = {
            **networks.settings(row, run),
            "train": str(data.train),
            "test": str(data.test),
            **{f"probe.{name}": value for name, value in {**asdict(probe), **given}.items()},
        }
        name = f"{slug(row.name)}-seed{run.seed}-{self.judge}-{slug(data.name)}"
        return self._judgement(row, run, name, wanted, by_the_probe, seen)

    def _judgement(
        self,
        row: Row,
        run: Run,
        name: str,
        wanted: dict[str, Any],
        make: Callable[[], Part],
        seen: Callable[[Part], Seen] = lambda done: {},
        changed: Callable[[Part], str | None] = lambda done: None,
    ) -> Part:
        """What judging the row's own network gave."""
        parts, station = self._parts, self._networks.station(row, run)
        if station is None:
            return parts.once(name, wanted, make, seen, changed)

        def of_its_own() -> Part:
            return {**make(), "network": station.weights}

        def not_as_it_was(done: Part) -> str | None:
            station.refuse_of_another(parts.place(name), done.get("network"))
            return changed(done)

        return parts.once(name, wanted, of_its_own, seen, not_as_it_was)

    def _say_in_both(self, data: Data, images: LabelledImages, test: LabelledImages) -> None:
        if said := said_of_both(images, test):
            self.bench.display.say(f"  {data.name}: {said}")

    def _said(self, remarks: Iterable[str]) -> list[str]:
        """What judges remark on, shown, without the flags of `evaluate`, which a study has not."""
        remarks = [_FLAGS.sub("", remark) for remark in remarks]
        for remark in remarks:
            self.bench.display.say(f"    {remark}")
        return remarks

    def _transferred(
        self, row: Row, run: Run, task: Task, first: Measured | None
    ) -> dict[str, Any]:
        """What the row's network reaches in a task that it was not trained for."""
        protocol = task.with_seed(
            run.seed, None if first is None else first.judged[task.name]["result"]
        )
        settings: dict[str, Any] = asdict(protocol)  # type: ignore[call-overload]

        def by_the_protocol() -> dict[str, Any]:
            common = {"task": task.name, **record.conditions(self.bench)}
            stages = Stages(RunFolder(self.out), common, self.bench, lenders=self.networks_of)
            outcome = protocol(
                Contender(row.name, lambda seed: self._networks.subject(row, run)),
                Material(task.data, self.out / "stores", self.shelf),
                self.bench,
                stages,
            )
            figures = task.figures(outcome.result)
            said = ", ".join(f"{name} {100 * share:.1f}" for name, share in figures.items())
            self.bench.display.say(f"  {task.name}: {said}")
            return {
                "data": outcome.data,
                "figures": figures,
                "result": outcome.result,
                "remarks": self._said(outcome.remarks),
                "stages_made": stages.made,
            }

        def changed(done: Part) -> str | None:
            follow = self.bench.follow_links
            return what_changed(task, done.get("data", {}), self.shelf, follow_links=follow)

        wanted = {
            **self._networks.settings(row, run),
            "data": str(task.data),
            **{f"protocol.{name}": value for name, value in settings.items()},
        }
        name = f"{slug(row.name)}-seed{run.seed}-{slug(task.name)}"
        return self._judgement(row, run, name, wanted, by_the_protocol, changed=changed)

    def _settled(self, row: Row, before: list[Row]) -> Row:
        """The row as it is tuned, noted where labels that it has learnt choose its probes."""
        row = Tuning(self._networks).settled(row, before)
        by_probe = self.judge not in BY_TASK and row.run.labels == "folders"
        known = by_probe and (row.choices is None or self.judge != "linear")
        if not row.trained and not row.begun and row.run.network.patches:
            row = row.noted(_DRAWN)
        first = self.terms.data[0].name
        return replace(row, notes_on={first: _KNOWN.format(first)}) if known else row
