"""Which network a row of a growing run is judged by, whatever was trained and deleted since."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepcluster.runtime.errors import ResumeError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.studies.stations import Station


def trained_to(station: Station, weights: str) -> None:
    """The run when training has come to these weights, and the part that says so."""
    station.run.write("settings.json", "{}")
    station.run.write("model.safetensors", weights)
    station.run.write("groups.safetensors", f"groups {weights}")
    closing = json.dumps({"sha256": station.run.hashes()})
    station.run.write("closing.json", closing)
    station.training.parent.mkdir(exist_ok=True)
    station.training.write_text(json.dumps({"closing": json.loads(closing)}))


@pytest.fixture
def station(tmp_path: Path) -> Station:
    run, kept = RunFolder(tmp_path / "runs/growing"), RunFolder(tmp_path / "stations/1-epoch")
    made = Station("1 epoch", 1, run, kept, tmp_path / "parts/1-epoch-training.json")
    trained_to(made, "of the first training")
    made.keep()
    return made


def test_what_was_trained_anew_takes_the_place_of_what_was_kept(station: Station):
    trained_to(station, "of the second training")
    with pytest.raises(ResumeError, match=r"the network of .1 epoch. is not there"):
        station.judged()
    station.keep()
    kept = station.judged()
    assert (kept.path / "model.safetensors").read_text() == "of the second training"
    assert kept.closing == station.run.closing


def test_groups_are_kept_with_the_network_that_they_are_of(station: Station):
    """Judges of a study need none, but what is there must fit, and evaluate takes a station too."""
    for training in ("of the first training", "of the second training"):
        trained_to(station, training)
        station.keep()
        kept = station.judged().verified("groups.safetensors")
        assert kept.read_text() == f"groups {training}"


def test_what_was_kept_half_is_of_no_training(station: Station, monkeypatch: pytest.MonkeyPatch):
    """Not of the former one either, should training come to that again."""
    trained_to(station, "of the second training")
    write = RunFolder.write

    def cut_short(folder: RunFolder, name: str, content: Any) -> None:
        if name == "closing.json":
            raise KeyboardInterrupt
        write(folder, name, content)

    monkeypatch.setattr(RunFolder, "write", cut_short)
    with pytest.raises(KeyboardInterrupt):
        station.keep()
    monkeypatch.undo()
    trained_to(station, "of the first training")
    with pytest.raises(ResumeError, match=r"the network of .1 epoch. is not there"):
        station.judged()
    station.keep()
    kept = station.judged().verified("model.safetensors")
    assert kept.read_text() == "of the first training"


def test_a_run_that_has_gone_on_takes_no_place(station: Station):
    station.run.write("model.safetensors", "of two epochs")
    station.run.write("closing.json", json.dumps({"sha256": station.run.hashes()}))
    station.keep()
    assert (station.judged().path / "model.safetensors").read_text() == "of the first training"


def test_a_judgement_of_other_weights_is_refused_whenever_it_was_made(station: Station):
    part = station.training.with_name("1-epoch-linear.json")
    part.touch()
    before = station.weights
    station.refuse_of_another(part, before)
    trained_to(station, "of the second training")
    station.keep()
    with pytest.raises(ResumeError, match=r"linear\.json was made of another network than .1 epo"):
        station.refuse_of_another(part, before)
    station.refuse_of_another(part, None)  # an older version did not say
