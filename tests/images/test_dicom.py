"""DICOM as pictures; the files are made by pydicom itself."""

from __future__ import annotations

import io
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepcluster.images import dicom, folder
from deepcluster.images.decode import FIRST_FRAME, Unusable, decode
from deepcluster.images.folder import find_images, starts_like_an_image
from deepcluster.images.kept import Pixels
from deepcluster.images.selection import selected
from deepcluster.images.source import Folder

pydicom = pytest.importorskip("pydicom", reason="needs the extra [dicom]")

RAMP = np.tile(np.arange(0, 4000, 4, dtype=np.uint16), (4, 1))  # of 12 bits


def written(levels: np.ndarray, kind: str = "MONOCHROME2", bits: int = 12, **more: Any) -> bytes:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, generate_uid

    data = Dataset()
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    data.SOPInstanceUID = data.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    colours = levels.shape[-1] == 3
    data.Rows, data.Columns = levels.shape[-3:-1] if colours else levels.shape[-2:]
    if levels.ndim == (4 if colours else 3):
        data.NumberOfFrames = levels.shape[0]
    data.SamplesPerPixel = 3 if colours else 1
    if colours:
        data.PlanarConfiguration = 0
    data.PhotometricInterpretation = kind
    data.BitsAllocated, data.BitsStored, data.HighBit = 8 * levels.itemsize, bits, bits - 1
    data.PixelRepresentation = int(levels.dtype.kind == "i")
    data.PatientName = "Nobody^Knows"
    for name, value in more.items():
        setattr(data, name, value)
    data.PixelData = levels.tobytes()
    data["PixelData"].VR = "OW" if levels.itemsize > 1 else "OB"
    file = io.BytesIO()
    data.save_as(file, enforce_file_format=True)
    return file.getvalue()


def row(data: bytes) -> np.ndarray:
    image, _ = decode(io.BytesIO(data))
    assert image.mode == "RGB"
    assert image.info == {}
    pixels = np.asarray(image).astype(int)
    assert (pixels[..., :1] == pixels).all()
    return pixels[0, :, 0]


def test_without_a_window_it_is_stretched_and_keeps_all_levels() -> None:
    levels = row(written(RAMP))
    assert len(np.unique(levels)) == 256
    assert (np.diff(levels) >= 0).all()
    assert np.array_equal(row(written(RAMP, "MONOCHROME1")), levels[::-1])  # small is bright


def test_its_window_is_the_standards() -> None:
    levels = row(written(RAMP, WindowCenter=2000, WindowWidth=1001))
    inside = (RAMP[0].astype(float) - 1999.5) / 1000 + 0.5  # PS3.3, C.11.2.1.2.1
    assert np.array_equal(levels, np.rint(inside.clip(0, 1) * 255))
    turned = row(written(RAMP, "MONOCHROME1", WindowCenter=2000, WindowWidth=1001))
    assert np.array_equal(turned, 255 - levels)


def test_numbers_are_what_they_measure_before_the_window_is_applied() -> None:
    more = {"RescaleSlope": 2, "RescaleIntercept": -1024}
    several = {"WindowCenter": ["40", "300"], "WindowWidth": ["400", "1500"]}
    levels = row(written(RAMP.astype(np.int16), bits=16, **more, **several))
    inside = (RAMP[0] * 2.0 - 1024 - 39.5) / 399 + 0.5
    assert np.abs(levels - inside.clip(0, 1) * 255).max() <= 0.51


def test_a_window_that_shows_nothing_is_not_used() -> None:
    assert np.array_equal(row(written(RAMP, WindowCenter=-9e5, WindowWidth=2)), row(written(RAMP)))


def test_colours() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)
    image, mode = decode(io.BytesIO(written(pixels, "RGB", 8)))
    assert np.array_equal(np.asarray(image), pixels)
    assert mode == "RGB"


def test_frames(tmp_path: Path) -> None:
    series = np.stack([RAMP, RAMP[:, ::-1], RAMP // 2])
    data = written(series)
    assert decode(io.BytesIO(data))[1].endswith(FIRST_FRAME)
    assert np.array_equal(row(data), row(written(RAMP)))
    (tmp_path / "s.dcm").write_bytes(data)
    frames = selected(Folder(tmp_path), Pixels(frames="all"))
    assert [found.path for found in frames.find()] == ["s.dcm/1", "s.dcm/2", "s.dcm/3"]
    for number, levels in enumerate(series, 1):
        with frames.open(f"s.dcm/{number}") as file:
            assert np.array_equal(row(file.read()), row(written(levels)))


@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_truncated(share: float) -> None:
    data = written(RAMP)
    with pytest.raises(Unusable, match="truncated"):
        decode(io.BytesIO(data[: int(share * len(data))]))


def test_what_has_no_pixels_or_too_many_is_named() -> None:
    with pytest.raises(Unusable, match="DICOM without pixels"):
        decode(io.BytesIO(_without_pixels()))
    with pytest.raises(Unusable, match=r"too many pixels \(100 MP"):
        decode(io.BytesIO(written(RAMP, Rows=10_000, Columns=10_000)))


def _without_pixels() -> bytes:
    data = pydicom.dcmread(io.BytesIO(written(RAMP)))
    del data.PixelData
    file = io.BytesIO()
    data.save_as(file)
    return file.getvalue()


def test_damage_never_raises_anything_else() -> None:
    data = np.frombuffer(written(RAMP, WindowCenter=1, WindowWidth=5), np.uint8)
    random = np.random.default_rng(0)
    for _ in range(60):
        damaged = data.copy()
        damaged[random.integers(132, 600, 6)] = random.integers(0, 256, 6)
        with suppress(Unusable):
            assert decode(io.BytesIO(damaged.tobytes()))[0].mode == "RGB"


def test_a_file_without_extension_is_found_and_without_pydicom_it_is_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = written(RAMP)
    assert starts_like_an_image(data[: folder.HEAD])
    for name in ("IM0001", "a.dcm"):
        (tmp_path / name).write_bytes(data)
    assert [found.path for found in find_images(tmp_path)] == ["IM0001", "a.dcm"]
    for module in (folder, dicom):
        monkeypatch.setattr(module, "READS_DICOM", False)
    with pytest.raises(Unusable, match=r"pip install 'deepcluster\[dicom\]'"):
        decode(io.BytesIO(data))
    assert not starts_like_an_image(data[: folder.HEAD])
