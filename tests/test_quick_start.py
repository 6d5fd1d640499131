"""Every command of docs/quick-start.md is executed, in order, in a folder with images."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import child
import pytest

ROOT = Path(__file__).parent.parent
PHOTOS = ROOT.parent / "shared" / "data" / "photos-300.zip"
NEEDS = {"pandas": ("pandas",), "onnx": ("onnx", "onnxruntime", "onnxscript")}


def blocks() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "quick-start.md").read_text()
    return re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)


def walk(folder: Path, shorten: Callable[[str], str] = lambda line: line) -> list[str]:
    """Carry out the page; gives the packages that some of it would have needed."""
    missing = []
    for kind, text in blocks():
        wanted = [name for word, names in NEEDS.items() if word in text for name in names]
        if lacking := [name for name in wanted if find_spec(name) is None]:
            missing += lacking
            continue
        if kind == "sh":
            for line in text.splitlines():
                if line.startswith("deepcluster "):
                    code, output = child.run(shlex.split(shorten(line))[1:], folder)
                    assert code == 0, f"{line}: {output}"
        else:
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
            command = [sys.executable, "-c", text]
            done = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{text}: {done.stdout}{done.stderr}"
    return sorted(set(missing))


def test_every_command_runs(textures: Callable[..., Path], tmp_path: Path):
    for number, path in enumerate(sorted(textures(40).rglob("*.png"))):
        name = f"{number:04d}-{'original' if number % 3 else 'thing'}.png"
        (tmp_path / "photos").mkdir(exist_ok=True)
        path.rename(tmp_path / "photos" / name)
    missing = walk(tmp_path, lambda line: line.replace("--epochs 6", "--epochs 1"))
    for name in ("features.parquet", "copies.csv", "labels.csv", "labels.ask.csv"):
        assert (tmp_path / name).exists()
    assert (tmp_path / "odd.png").exists()
    assert (tmp_path / "photos.onnx").exists() == ("onnx" not in missing)
    if missing:
        pytest.skip(f"all but the parts that need {', '.join(missing)} were executed")


@pytest.mark.slow
@pytest.mark.data
def test_it_takes_less_than_five_minutes(tmp_path: Path):
    if not PHOTOS.exists():
        pytest.skip(f"{PHOTOS} is not there")
    with zipfile.ZipFile(PHOTOS) as archive:
        archive.extractall(tmp_path / "photos")
    begun = time.monotonic()
    walk(tmp_path)
    assert time.monotonic() - begun < 300


def test_the_page_has_what_it_promises():
    text = "".join(text for _, text in blocks())
    for verb in ("train", "embed", "duplicates", "label", "export"):
        assert f"deepcluster {verb} " in text
    assert "onnxruntime" in text
    assert "pandas" in text
