"""A setting that changes nothing is a lie: each one alone leads to another network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import child
import pytest

COMMON = (
    f"{child.PLAIN} --k 4 --epochs 2 --batch 8 --network.width 16 --whitening.dimensions 8 "
    "--workers 1 --device cpu --out run"
)


@pytest.fixture(scope="module")
def trained(
    textures: Callable[[int], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], bytes]:
    """The weights that a run with these flags ends with; the same run is made once."""
    images = textures(24)
    known: dict[str, bytes] = {}

    def weights(flags: str) -> bytes:
        if flags not in known:
            folder = tmp_path_factory.mktemp("run")
            words = ["train", str(images), *COMMON.split(), *flags.split()]
            code, output = child.run(words, folder)
            assert code == 0, output
            content = (folder / "run/model.safetensors").read_bytes()
            known[flags] = content[8 + int.from_bytes(content[:8], "little") :]  # not the settings
        return known[flags]

    return weights


@pytest.mark.parametrize(
    "flags",
    [
        "--training.schedule cosine",
        "--training.schedule cosine --training.fall 0.3",
        "--training.warmup 1",
        "--training.smoothing 0.2",
        "--training.head-step 3",
        "--training.head matched",
        "--clustering-start previous",
        "--crops.scale 0.9",
        "--crops.ratio 1",
        "--jitter.brightness 0.5",
        "--jitter.contrast 0.5",
        "--jitter.blur 0.5",
        "--jitter.erase 0.5",
        "--network.clustered fc6",
        "--network.views 2",
        "--network.patches 2",
        "--whitening.kind none",
        "--labels folders",
    ],
)
def test_each_setting_alone_leads_to_another_network(flags: str, trained: Callable[[str], bytes]):
    assert trained(flags) != trained("")


def test_a_late_fall_leads_to_another_network_than_a_fall_from_the_start(
    trained: Callable[[str], bytes],
):
    cosine, late = "--training.schedule cosine", "--training.schedule cosine --training.fall 0.3"
    assert trained(late) != trained(cosine)
    assert trained(f"{cosine} --training.fall 1") == trained(cosine)


def test_defaults_spelled_out_lead_to_the_same_network(trained: Callable[[str], bytes]):
    defaults = (
        "--training.schedule constant --training.fall 1 --training.warmup 0 "
        "--training.smoothing 0 --training.head fresh --training.head-step 1 "
        "--clustering-start random --crops.scale 0.08 "
        "--network.clustered top --network.views 1 --network.patches 0 --labels clusters "
        "--jitter.blur 0"
    )
    assert trained(defaults) == trained("")
