"""Words of a command line to typed settings; what is wrong with them is one sentence."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Collection, Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

from deepcluster.runtime.errors import UsageError

Command = TypeVar("Command")

_INVALID_CHOICE = re.compile(
    r"invalid choice '(?P<given>[^']*)' for argument '(?P<flag>[^']*)'\. "
    r"Expected one of \((?P<there>[^)]*)\)"
)
_IN_PLAIN_WORDS = (  # what Python says of a word that is no number
    (r"invalid literal for int\(\) with base 10: (.*)", r"\1 is no whole number"),
    (r"could not convert string to float: (.*)", r"\1 is no number"),
    (r"no type matching \{None\}\|INT could.*", "give a whole number"),
    (r"no type matching \{None\}\|FLOAT could.*", "give a number"),
)


def shown_as(metavar: str) -> object:
    """How a flag without a default is shown in the help: by what it takes, and no 'None'."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Place = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="IMAGES")]
RunPlace = Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
Count = Annotated[int | None, shown_as("N")]


def parsed(
    kind: type[Command],
    words: list[str],
    verb: str,
    short: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Command:
    """The command that the words ask for.

    Args:
        kind: What can be asked for.
        words: What was typed, short names spelled out.
        verb: Which command it is.
        short: The long name of each short one; what is wrong is told by the short one.
        options: Tyro's.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(complaint):
            return tyro.cli(kind, args=words, prog=f"deepcluster {verb}", **options)
    except SystemExit:
        sentence = _one_sentence(complaint.getvalue(), verb)
        if choice := _INVALID_CHOICE.search(_joined(complaint.getvalue())):
            there = ", ".join(_choices(kind, choice))
            sentence = f"{choice['flag']} {choice['given']}: there are {there}"
        for brief, long in short.items():
            sentence = re.sub(rf"{re.escape(long)}(?![\w-])", brief, sentence)
        raise UsageError(sentence) from None


def read(kind: type[Command], words: list[str], verb: str) -> Command:
    """The command that the words ask for: its help, or a sentence on a flag that it lacks."""
    if {"-h", "--help"} & {*words}:
        tyro.cli(kind, args=["--help"], prog=f"deepcluster {verb}")
    known = ["--" + entry.name.replace("_", "-") for entry in fields(cast(Any, kind))]
    refuse_unknown(words, known, f"deepcluster {verb} --help", {})
    return parsed(kind, words, verb)


def refuse_unknown(
    words: list[str],
    known: Collection[str],
    help_command: str,
    short: Mapping[str, str],
    meant: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Raise where a word is a flag that is not known, with the one that was probably meant.

    Args:
        words: What was typed, short names spelled out.
        known: The flags that there are.
        help_command: Where all of them can be seen.
        short: The long name of each short one.
        meant: What is meant by some that there are not, where another is spelled more alike.
    """
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        positive = re.sub(r"(--|\.)no-", r"\1", flag)  # --speed.no-record-steps
        if flag.startswith("--") and flag not in known and positive not in known:
            asked = {long: brief for brief, long in short.items()}.get(flag, flag)
            alike = get_close_matches(flag, [*known, *short], n=1)
            close = [meant[flag]] if flag in meant else alike
            hint = f"did you mean {close[0]}?" if close else f"see {help_command}"
            raise UsageError(f"no such option {asked}; {hint}")
        if re.fullmatch(r"[a-z_.]+=.*", word) and f"--{flag}" in {*known, *short}:
            raise UsageError(f"{word!r}: write it as --{word.replace('=', ' ', 1)}")


def _choices(kind: object, refused: re.Match[str]) -> list[str]:
    """What may be chosen, in the order of the help."""
    there = re.findall(r"'([^']*)'", refused["there"])
    if "None" not in there:
        return there
    # Of what may be left open tyro lists a set, which has no order, and the default with it.
    name = refused["flag"].rpartition(".")[2].removeprefix("--").replace("-", "_")
    ordered = _literals(kind, name)
    return [str(one) for one in ordered] or sorted({*there} - {"None"})


def _literals(kind: object, name: str) -> list[object]:
    """The words of the field of that name, of these settings or of those that they hold."""
    if not is_dataclass(kind):
        return []
    for field, hint in get_type_hints(kind).items():
        if field == name:
            return [word for part in (hint, *get_args(hint)) for word in _words(part)]
        for part in (hint, *get_args(hint)):
            if found := _literals(part, name):
                return found
    return []


def _words(hint: object) -> tuple[object, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def _joined(complaint: str) -> str:
    """A long complaint is broken into lines."""
    return " ".join(_lines(complaint))


def _lines(complaint: str) -> list[str]:
    """A complaint without the box around it."""
    lines = [line.strip("│╭╮╰╯─ -").strip() for line in complaint.splitlines()]
    return [line for line in lines if line]


def _one_sentence(complaint: str, verb: str) -> str:
    """What tyro has against the words, in one sentence."""
    lines = _lines(complaint)
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("Error parsing"):
            reason = line.removeprefix("Error parsing ")
            if reason.endswith(":"):  # what was given is on the next line
                reason += f" {after}"
            for pattern, plain in _IN_PLAIN_WORDS:
                reason = re.sub(pattern, plain, reason)
            return f"{reason}; see deepcluster {verb} --help"
        if line.startswith("Unrecognized options: "):
            extra = line.removeprefix("Unrecognized options: ")
            if verb not in ("train", "check", "pack", "embed", "predict"):
                return f"{extra}: not understood; see deepcluster {verb} --help"
            return f"{extra}: not understood; give one IMAGES (a pattern of shards needs quotes)"
    if any(line.startswith("RUN") for line in lines):
        return (
            f"which run? deepcluster {verb} RUN ..., where RUN is the folder of a finished run; "
            f"see deepcluster {verb} --help"
        )
    if any(line.startswith("TILES") for line in lines):
        return "which tiles? deepcluster tile IMAGES TILES, where TILES is a folder to be made"
    if any(line.startswith("STORE") for line in lines):
        return "which store? deepcluster pack IMAGES STORE, where STORE is a folder to be made"
    if any("IMAGES" in line for line in lines):
        run = "" if verb in ("train", "check", "pack", "tile") else "RUN "
        return (
            f"which images? deepcluster {verb} {run}IMAGES, where IMAGES is a folder, a list of "
            "paths or tar shards"
        )
    if any(line.startswith("IMAGE") for line in lines):
        return f"which image? deepcluster {verb} RUN IMAGE"
    if any(line.startswith("OTHER") for line in lines):
        return f"which other run? deepcluster {verb} RUN OTHER"
    if any(line.startswith("labels CSV") for line in lines):
        return f"which labels? give --labels CSV (path, label); see deepcluster {verb} --help"
    if any(line.startswith("to {") for line in lines):
        return f"to what? give --to FORMAT; see deepcluster {verb} --help"
    if any(line.startswith("CHECKPOINT") for line in lines):
        return f"which checkpoint? deepcluster {verb} CHECKPOINT --out RUN"
    if any(line.startswith("out RUN") for line in lines):
        return f"where to? give --out RUN, a folder to be made; see deepcluster {verb} --help"
    if any(line.startswith("out FILE") for line in lines):
        return f"where to? give --out FILE; see deepcluster {verb} --help"
    return " ".join(lines) or f"the command cannot be read; see deepcluster {verb} --help"
