"""What classifiers on frozen layers reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from deepcluster.evaluation.accuracy import best
from deepcluster.evaluation.candidates import Candidate


@dataclass(frozen=True)
class LayerResult:
    """What one layer's classifier reaches; shares of images, from 0 to 1."""

    layer: str
    width: int
    """Numbers that the classifier sees."""
    top1: float
    top5: float
    step: float
    decay: float
    held_out_top1: float
    """Of the chosen candidate, by which it was chosen, unless it was chosen elsewhere."""
    is_at_edge: bool
    """Whether the chosen step is the smallest or largest of three or more: a wider grid might do
    better."""
    best_on_test_top1: float
    """Over the epochs looked at, chosen on the test images as the released code does."""
    best_on_test_epoch: int
    ten_crops_top1: float | None
    ten_crops_top5: float | None
    candidates: list[dict[str, float]]
    """Step, decay and held-out top-1 of every candidate, and whether it diverged."""
    diverged: bool = False
    """Whether what is reported is of scores that are not finite: its figures mean nothing."""

    @property
    def remark(self) -> str:
        """What the reader of the figures should know of the steps; or nothing."""
        if self.diverged:
            every = all(one["diverged"] for one in self.candidates)
            with_all = " with every step tried" if every else ""
            return f"learning diverged{with_all}; with smaller ones it may not (--steps)"
        if self.is_at_edge:
            return (
                f"the best step, {self.step:g}, is at the edge of those tried; others may do "
                "better (--steps)"
            )
        return ""


@dataclass(frozen=True)
class ProbeResult:
    """What the classifiers of all layers reach."""

    layers: list[LayerResult]
    trained_on: int
    chosen_on: int
    tested_on: int
    seconds: dict[str, float] = field(default_factory=dict)

    def top1(self) -> dict[str, float]:
        """Top-1 on the centre crop, by layer."""
        return {layer.layer: layer.top1 for layer in self.layers}

    @property
    def remarks(self) -> list[str]:
        """What is to be said of the layers' steps, of those alike at once."""
        alike: dict[str, list[str]] = {}
        for layer in self.layers:
            if layer.remark:
                alike.setdefault(layer.remark, []).append(layer.layer)
        return [f"{', '.join(layers)}: {remark}" for remark, layers in alike.items()]

    def choices(self) -> dict[str, Candidate]:
        """Step and decay, by layer."""
        return {layer.layer: Candidate(layer.step, layer.decay) for layer in self.layers}


def layer_result(
    candidates: Sequence[Candidate],
    name: str,
    width: int,
    choice: int,
    by_held: Sequence[float],
    seen: Sequence[tuple[int, tuple[float, float]]],
    ten: tuple[float, float] | None,
    *,
    on_held_finite: Sequence[bool] = (),
    finite: bool = True,
) -> LayerResult:
    """What a layer's classifier reached.

    Args:
        candidates: All of them.
        name: The layer.
        width: Numbers that the classifier sees.
        choice: Which candidate was chosen.
        by_held: The held-out top-1 of each candidate.
        seen: Epoch, and top-1 and top-5 of the chosen one on the test images, the last one last.
        ten: The same over ten crops, if asked for.
        on_held_finite: Whether all scores of each candidate were, if it is not known that they are.
        finite: Whether those of the chosen one on the test images are, at the end.
    """
    chosen = candidates[choice]
    _, (top1, top5) = seen[-1]
    best_epoch, (best_top1, _) = seen[best(on_test for _, (on_test, _) in seen)]
    steps = {candidate.step for candidate in candidates}
    return LayerResult(
        layer=name,
        width=width,
        top1=top1,
        top5=top5,
        step=chosen.step,
        decay=chosen.decay,
        held_out_top1=by_held[choice],
        is_at_edge=len(steps) > 2 and chosen.step in (min(steps), max(steps)),
        best_on_test_top1=best_top1,
        best_on_test_epoch=best_epoch,
        ten_crops_top1=None if ten is None else ten[0],
        ten_crops_top5=None if ten is None else ten[1],
        candidates=[
            {
                "step": candidate.step,
                "decay": candidate.decay,
                "held_out_top1": held,
                "diverged": not good,
            }
            for candidate, held, good in zip(
                candidates, by_held, on_held_finite or [True] * len(candidates), strict=True
            )
        ],
        diverged=not finite,
    )
