"""Nothing that is read back can run code: no pickle anywhere in the package."""

import ast
from pathlib import Path

import pytest

import deepcluster

SOURCES = sorted(Path(deepcluster.__file__).parent.rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"torch.load", "torch.save"}
RELEASED = Path(deepcluster.__file__).parent / "exchange" / "released.py"


def offences(source: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [ast.unparse(node)]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            names = [] if ast.unparse(node.value) == "False" else ["pickle"]
        else:
            continue
        found += [
            name
            for name in names
            if name.split(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS
        ]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_module_does_not_pickle(path):
    if path != RELEASED:
        assert offences(path.read_text()) == []


def test_the_authors_checkpoints_are_read_by_the_restricted_unpickler_alone():
    source = RELEASED.read_text()
    assert {*offences(source)} == {"pickle", "pickle.UnpicklingError", "torch.load"}
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    loads = [call for call in calls if ast.unparse(call.func) == "torch.load"]
    assert loads
    for call in loads:
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert given["weights_only"] == "True"


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "from torch import load",
        "import torch\ntorch.load('x')",
        "f = torch.save",
        "np.load('x', allow_pickle=True)",
    ],
)
def test_the_test_would_notice(source):
    assert offences(source)
