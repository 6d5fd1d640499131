"""The documents say what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from deepcluster.runtime import errors
from deepcluster.training.checkpoint import CheckpointDamaged

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "deepcluster"


def test_the_map_has_one_line_for_every_file():
    files = {
        str(path.relative_to(ROOT))
        for path in (*SOURCE.rglob("*.py"), *SOURCE.rglob("*.c"))
        if path.name not in ("__init__.py", "__main__.py")
    }
    mapped = re.findall(
        r"^\| `(src/[^`]+)` \|", (ROOT / "docs" / "map.md").read_text(), re.MULTILINE
    )
    assert sorted(mapped) == sorted(files)


def test_the_alternation_is_under_forty_lines():
    module = ast.parse((SOURCE / "loop.py").read_text())
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    alternate = functions["alternate"]
    assert alternate.end_lineno is not None
    assert alternate.end_lineno - alternate.lineno + 1 < 40


@pytest.mark.parametrize("document", ["README.md", "docs/clusters.md"])
def test_the_python_of_the_documents_runs(document):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    runnable = [block for block in blocks if block.startswith("import")]
    assert runnable
    for block in runnable:
        exec(compile(block, document, "exec"), {})


def test_every_warning_is_explained():
    explained = (ROOT / "docs" / "exit-codes.md").read_text()
    kinds = [CheckpointDamaged, *errors.HealthWarning.__subclasses__()]
    assert [kind.name for kind in kinds if f"`{kind.name}`" not in explained] == []


def test_every_exit_code_is_explained():
    explained = (ROOT / "docs" / "exit-codes.md").read_text()
    codes = {kind.exit_code for kind in errors.DeepClusterError.__subclasses__()}
    assert [code for code in codes if f"| {code} |" not in explained] == []


def test_every_setting_group_is_documented():
    from deepcluster.presets import PRESETS
    from deepcluster.settings import flat

    documented = (ROOT / "docs" / "settings.md").read_text()
    names = {name for preset in PRESETS.values() for name in flat(preset())}
    leaves = {name.rpartition(".")[2].replace("_", "-") for name in names}
    named = {leaf for leaf in leaves if f"`{leaf}`" in documented or f"`--{leaf}`" in documented}
    assert sorted(leaves - named) == []
