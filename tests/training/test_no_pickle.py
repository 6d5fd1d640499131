"""Nothing that is read back can run code: no pickle anywhere in the package."""

import ast
from pathlib import Path

import pytest

import deepcluster

SOURCES = sorted(Path(deepcluster.__file__).parent.rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
FORBIDDEN_CALLS = {"torch.load", "torch.save"}


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
    assert offences(path.read_text()) == []


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
