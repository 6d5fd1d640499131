"""One verb per thing a person wants. `deepcluster --help` imports no torch and no scikit-learn."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from deepcluster.runtime.errors import DeepClusterError, UsageError
from deepcluster.runtime.interruption import Interrupted

VERBS = {
    "train": "learn features and groups from a folder of images; the same command continues",
    "check": "read all images once: what cannot be used, copies, sizes, and what training takes",
    "pack": "decode images once into a store that train reads",
    "tile": "cut images that are too large (slides, satellite scenes) into tiles",
    "evaluate": "how good a network is: linear probes, neighbours, agreement, transfer to VOC",
    "embed": "features of any images into a .parquet, .npy or .csv file",
    "predict": "the group of any images, or that they belong to none",
    "similar": "the images of a run that are most like one image",
    "duplicates": "images of a run that show the same, in groups; nothing is deleted",
    "outliers": "images of a run that are far from every group",
    "label": "spread a few labels to all images of a run; which to label next",
    "runs": "list the runs in a folder, each with a verdict",
    "diff": "how two runs differ: settings, images, figures, groups",
    "export": "the network of a run as safetensors, ONNX, for torchvision or the hub",
    "import": "a run from a checkpoint that the paper's authors released, read safely",
    "reproduce": "one table or figure of the paper, paper beside ours",
    "report": "write the page of a run anew: its groups, how it learned, what to do next",
    "explore": "the page of a run in the browser: search by image, name, move and merge groups",
    "show": "one picture of a run: filters, top, ascent, neighbours, clusters, sizes, purity, map",
    "demo": "see it learn on images that come with the package (no network, no GPU)",
}

_HELP = """usage: deepcluster VERB ...

Unsupervised learning of visual features by clustering: a convnet that teaches itself from your
images, and the groups they fall into.

{verbs}

deepcluster VERB --help says more; --debug shows where an error came from.
"""

_REPRODUCE_HELP = """usage: deepcluster reproduce NAME --data DIR [--second DIR]
       deepcluster reproduce FIGURE --run RUN
       deepcluster reproduce NAME --smoke

One table or figure of the paper: networks are trained and judged one after another, and set beside
the paper's own figures. The same command goes on where it was stopped.

{studies}

Pictures, of any run (--run RUN), or of a network trained for it:

{figures}

deepcluster reproduce NAME --help shows the flags; docs/studies.md says what each study does.
"""


_CONTINUED = ("train", "demo", "pack", "tile", "embed", "predict", "reproduce")
_STAGED = ("voc-", "retrieval")  # evaluations that keep what they have done


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out one command; gives the exit code (0 done, 2 misuse, see docs/exit-codes.md)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):  # no name of a file may break a terminal
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        code = _carry_out(words)
        sys.stdout.flush()
        return code
    except SystemExit:
        raise
    except BaseException as error:
        if debug:
            traceback.print_exc()
        return _told(error, words)
    finally:
        if arguments is None:  # the process ends: what refers to each other goes with it, unsorted
            gc.freeze()


def _told(error: BaseException, words: Sequence[str]) -> int:
    """Say in one sentence how a command ended; gives its exit code."""
    if isinstance(error, DeepClusterError):
        # All processes read the same words; what is wrong with those is said once, by the leader.
        # torchrun ends all as soon as one has ended, so the others leave it the time to say it.
        if not isinstance(error, UsageError) or os.environ.get("RANK", "0") == "0":
            _complain(str(error))
        else:
            time.sleep(10)
        return error.exit_code
    if isinstance(error, Interrupted):
        if os.environ.get("RANK", "0") == "0":
            _complain(f"stopped; what was saved is whole, and the same command {_goes(words)}")
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        _complain(f"stopped at once; what was saved is whole, and the same command {_goes(words)}")
        return 130
    if isinstance(error, BrokenPipeError):
        # Whoever read the output has left, as `head` does: there is nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    sentence = _known_shortage(error, words)
    _complain(sentence or f"unexpected {type(error).__name__}: {error} (--debug shows where)")
    return 6 if sentence else 1


def _goes(words: Sequence[str]) -> str:
    """What a command does that was stopped before."""
    staged = words[:1] == ["evaluate"] and words[2:3] and words[2].startswith(_STAGED)
    return "continues" if staged or (words[:1] and words[0] in _CONTINUED) else "begins anew"


def _carry_out(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        lines = [f"  {verb:<10} {what}" for verb, what in VERBS.items()]
        print(_HELP.format(verbs="\n".join(lines)))
        return 0
    if words[0] == "--version":
        from deepcluster import __version__

        print(f"deepcluster {__version__}")
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        raise UsageError(f"no such verb {verb!r}{_perhaps(verb, VERBS)}; see deepcluster --help")
    if verb in ("evaluate", "reproduce"):
        return _evaluate(rest) if verb == "evaluate" else _reproduce(rest)
    if verb in _REFUSALS:
        _REFUSALS[verb](rest)
    return _loaded(*_CODE[verb])(rest)


def _loaded(module: str, name: str) -> Callable[[list[str]], int]:
    """What carries out a verb.

    Loading torch makes objects by the hundred thousand, which stay: looked through again and again
    for some that might go, it takes twice as long.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        found: Callable[[list[str]], int] = getattr(import_module(f"deepcluster.{module}"), name)
    finally:
        if collecting:
            gc.enable()
    return found


def _evaluate(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help") or words[1:] in (["-h"], ["--help"]):
        from deepcluster.evaluation.catalogue import HELP

        print(HELP)
        return 0
    from deepcluster.evaluation.subject import UNTRAINED, judged_run

    helps = bool({"-h", "--help"} & {*words})  # the settings are the same whatever the run
    if not words[0].startswith("-") and words[0] not in UNTRAINED and not helps:
        judged_run(words[0])
    return _loaded("evaluate_command", "evaluate")(words)


def _reproduce(words: list[str]) -> int:
    from deepcluster.studies.catalogue import FIGURES, STUDIES

    known = {**STUDIES, **FIGURES}
    if not words or words[0] in ("-h", "--help"):
        studies, figures = (
            "\n".join(f"  {name:<10} {what}" for name, what in some.items())
            for some in (STUDIES, FIGURES)
        )
        print(_REPRODUCE_HELP.format(studies=studies, figures=figures))
        return 0
    if words[0] not in known:
        if words[0].startswith("-"):
            raise UsageError(f"which study? deepcluster reproduce NAME: {', '.join(known)}")
        hint = _perhaps(words[0], known) or f"; there are {', '.join(known)}"
        raise UsageError(f"no such study {words[0]!r}{hint}")
    if words[0] in FIGURES:
        return _loaded("figure_command", "reproduce_figure")(words)
    return _loaded("reproduce_command", "reproduce")(words)


def _no_images(words: list[str]) -> None:
    """Refuse what cannot be read before torch is imported, which takes seconds."""
    if words and not words[0].startswith("-"):
        from deepcluster.images.source import quick_check

        quick_check(Path(words[0]))


def _no_tiles(words: list[str]) -> None:
    if words:
        from deepcluster.images.source import is_picture

        if not is_picture(words[0]):
            _no_images(words)


def _no_run(words: list[str]) -> None:
    """Refuse what is no finished run before torch is imported."""
    if words and not words[0].startswith("-"):
        from deepcluster.runtime.run_folder import finished_run

        finished_run(words[0])


def _no_run_or_images(words: list[str]) -> None:
    _no_run(words)
    if len(words) > 1 and not words[1].startswith("-"):
        from deepcluster.images.source import is_picture, quick_check

        if not is_picture(words[1]):
            quick_check(words[1])


def _nothing_to_show(words: list[str]) -> None:
    if words and not words[0].startswith("-"):
        from deepcluster.evaluation.subject import begun_run

        begun_run(words[0], "show")


_REFUSALS = {
    "train": _no_images,
    "check": _no_images,
    "pack": _no_images,
    "tile": _no_tiles,
    "embed": _no_run_or_images,
    "predict": _no_run_or_images,
    "similar": _no_run,
    "duplicates": _no_run,
    "outliers": _no_run,
    "label": _no_run,
    "diff": _no_run,
    "export": _no_run,
    "explore": _no_run,
    "show": _nothing_to_show,
}
"""What is judged of a verb's words before its code is loaded."""

_CODE = {
    "train": ("train_command", "train"),
    "check": ("check_command", "check"),
    "pack": ("pack_command", "pack"),
    "tile": ("tile_command", "tile"),
    "embed": ("embed_command", "embed_verb"),
    "predict": ("embed_command", "predict_verb"),
    "similar": ("find_command", "similar_verb"),
    "duplicates": ("find_command", "duplicates_verb"),
    "outliers": ("find_command", "outliers_verb"),
    "label": ("label_command", "label_verb"),
    "runs": ("runs_command", "runs_verb"),
    "diff": ("runs_command", "diff_verb"),
    "export": ("export_command", "export_verb"),
    "import": ("import_command", "import_verb"),
    "report": ("report_command", "report"),
    "explore": ("explore_command", "explore"),
    "show": ("show_command", "show"),
    "demo": ("studies.demo", "demo"),
}
"""The module that carries out a verb, and the function there."""


def _perhaps(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _complain(sentence: str) -> None:
    """Say what went wrong; of several processes that fail alike, the leading one speaks."""
    if sentence:
        rank = os.environ.get("RANK", "0")
        who = "deepcluster" if rank == "0" else f"deepcluster (process {rank})"
        print(f"{who}: {sentence}", file=sys.stderr)


def _known_shortage(error: BaseException, words: Sequence[str]) -> str | None:
    """What to say when the machine is too small for what was asked, or does not permit it."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out of memory; try a smaller --batch or --input-size"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "no space left on the disk; make room, or write to another place; what was saved "
            f"before is whole, and the same command {_goes(words)}"
        )
    if isinstance(error, PermissionError) and error.filename is not None:
        return (
            f"no permission to use {error.filename}; name another place, or change who may use it"
        )
    return None
