from pathlib import Path

import pytest

from deepcluster.evaluation.circumstances import commit


def test_code_outside_of_a_repository_may_be_told_its_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("deepcluster.__file__", str(tmp_path / "__init__.py"))
    monkeypatch.delenv("DEEPCLUSTER_COMMIT", raising=False)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() is None
    monkeypatch.setenv("DEEPCLUSTER_COMMIT", "abc")
    assert commit() == "abc"
