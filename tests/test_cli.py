"""The verbs: each is there, and what it does not need is not loaded."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from deepcluster.cli import VERBS, main


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_how_it_is_used(verb: str, capsys: pytest.CaptureFixture[str]):
    try:
        code: object = main([verb, "--help"])
    except SystemExit as ended:
        code = ended.code
    assert code in (0, None)
    assert f"usage: deepcluster {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("collecting", [True, False])
def test_what_a_program_says_of_collecting_garbage_stays(collecting: bool):
    (gc.enable if collecting else gc.disable)()
    try:
        assert main(["runs", "nowhere"]) == 2
        assert gc.isenabled() is collecting
    finally:
        gc.enable()


@pytest.mark.parametrize("words", [["train"], ["reproduce", "table2"], ["predict"]])
def test_torchvision_is_loaded_by_those_who_use_it_alone(words: list[str]):
    script = (
        "import sys\nfrom deepcluster.cli import main\n"
        f"try:\n    main({[*words, '--help']})\nexcept SystemExit:\n    pass\n"
        "assert 'torch' in sys.modules and 'torchvision' not in sys.modules\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
