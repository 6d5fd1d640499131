"""Retrieval from files to figures, on generated landmarks."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from torch import Tensor
from torch.multiprocessing import spawn

from deepcluster.evaluation.bench import Bench
from deepcluster.evaluation.evaluated import Evaluated, untrained
from deepcluster.evaluation.landmarks import read_landmarks
from deepcluster.evaluation.map_layers import map_layer
from deepcluster.evaluation.retrieval import Retrieval, known_to_all, whitening_source
from deepcluster.evaluation.subject import Shape
from deepcluster.evaluation.transfer import Contender, Material, Outcome, Stages
from deepcluster.evaluation.whole_images import Wanted, WholeImages, resized
from deepcluster.images.source import Folder
from deepcluster.runtime.errors import DataError, DimensionsShrunk, NumericsError, UsageError
from deepcluster.runtime.run_folder import RunFolder
from deepcluster.runtime.world import World

SMALL = Retrieval(size=160, batch=3, dimensions=8)


@pytest.fixture(scope="module")
def subject() -> Evaluated:
    return untrained(Shape(input_size=64, width=8), seed=0)


@pytest.fixture(scope="module")
def oxford(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four landmarks, each of stripes of its own, photographed three times, lying and standing."""
    place = tmp_path_factory.mktemp("oxford")
    for folder in ("images", "gt_files", "other"):
        (place / folder).mkdir()
    randomness = np.random.default_rng(0)
    for landmark in range(4):
        facade = striped(120, np.pi * landmark / 4, 6 + 3 * landmark)
        for photo in range(3):
            size = (160, 120) if photo != 1 else (120, 160)
            noise = randomness.integers(110, 140, (size[1], size[0], 3)).astype(np.uint8)
            image = Image.fromarray(noise)
            image.paste(facade, (photo, 2 * photo))
            image.save(place / f"images/hall{landmark}_00000{photo}.png")
        names = [f"hall{landmark}_00000{photo}" for photo in range(3)]
        files = {
            "query": [f"oxc1_{names[0]} 0 0 120 120"],
            "good": names[:1],
            "ok": names[1:2],
            "junk": names[2:],
        }
        for kind, lines in files.items():
            (place / f"gt_files/hall{landmark}_1_{kind}.txt").write_text("\n".join(lines))
    for number in range(6):
        image = striped(160, randomness.random() * np.pi, randomness.uniform(4, 18))
        image.save(place / f"other/{number}.png")
    return place


def striped(size: int, angle: float, period: float) -> Image.Image:
    y, x = np.mgrid[:size, :size]
    wave = np.sin((x * np.cos(angle) + y * np.sin(angle)) * 2 * np.pi / period)
    return Image.fromarray((128 + 100 * wave).astype(np.uint8)).convert("RGB")


def whitening(oxford: Path) -> Folder:
    return Folder(oxford / "other")


def test_whole_images_come_in_batches_of_one_shape(oxford: Path):
    images = WholeImages(Folder(oxford / "images"), 96)
    wanted = [Wanted(found.path) for found in Folder(oxford / "images").find()]
    batches = list(images.batches(wanted, 3, 2, {}))
    assert sorted(number for batch in batches for number in batch.numbers) == list(range(12))
    assert {tuple(batch.pixels.shape[1:]) for batch in batches} == {(3, 72, 96), (3, 96, 72)}
    assert max(len(batch.numbers) for batch in batches) == 3
    for batch in batches:
        for number, pixels in zip(batch.numbers, batch.pixels, strict=True):
            alone = Image.open(oxford / "images" / wanted[number].path)
            assert np.array_equal(np.asarray(resized(alone, 96)), pixels.permute(1, 2, 0))


def test_shapes_that_never_fill_a_batch_do_not_pile_up(tmp_path: Path):
    for number in range(20):
        blank = np.zeros((64, 100 + 3 * number, 3), np.uint8)
        Image.fromarray(blank).save(tmp_path / f"{number:02d}.png")
    wanted = [Wanted(found.path) for found in Folder(tmp_path).find()]
    images = WholeImages(Folder(tmp_path), 200)
    first = next(iter(images.batches(wanted, 2, 1, {})))
    assert first.numbers == [0]  # handed out when eight wait, not after all twenty
    assert sorted(n for batch in images.batches(wanted, 2, 1, {}) for n in batch.numbers) == list(
        range(20)
    )


def test_a_box_is_cut_out_of_the_resized_image():
    pixels = np.random.default_rng(0).integers(0, 255, (40, 80, 3)).astype(np.uint8)
    image = Image.fromarray(pixels)
    whole = resized(image, 160)
    assert whole.size == (160, 80)
    part = resized(image, 160, (10, 5.1, 30, 42))  # rounding may push it over the edge
    assert np.array_equal(np.asarray(part), np.asarray(whole)[10:80, 20:60])
    assert np.array_equal(np.asarray(resized(image, 160, (-2, -2, 82, 42))), np.asarray(whole))
    with pytest.raises(ValueError, match="outside"):
        resized(image, 160, (90, 0, 99, 10))


@pytest.mark.parametrize("edge", range(4))
def test_a_box_that_reaches_beyond_its_image_is_refused(edge: int):
    image = Image.new("RGB", (80, 40))
    box = [0.0, 0.0, 80.0, 40.0]
    box[edge] += 2.1 if edge > 1 else -2.1
    with pytest.raises(ValueError, match=r"^its box reaches beyond the image; is it of another s"):
        resized(image, 160, tuple(box))  # type: ignore[arg-type]


def test_small_boxes_are_filled_up_by_their_edge(tmp_path: Path):
    pixels = np.random.default_rng(0).integers(0, 255, (100, 100, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "one.png")
    images = WholeImages(Folder(tmp_path), 100)
    (batch,) = images.batches([Wanted("one.png", (10, 20, 40, 90))], 1, 1, {})
    found = batch.pixels[0].permute(1, 2, 0).numpy()
    assert found.shape == (70, 64, 3)
    assert np.array_equal(found[:, 17:47], pixels[20:90, 10:40])
    assert np.array_equal(found[:, 0], found[:, 17])


def test_a_query_finds_its_own_image_first(subject: Evaluated, oxford: Path):
    landmarks = read_landmarks(oxford)
    settings = replace(SMALL, queries="image")
    result = settings.judged(subject, landmarks, whitening(oxford), Bench(workers=1))
    assert result.levels["all"]["precision_at_1"] == 1.0
    assert result.levels["all"]["map"] > 0.9


def test_queries_cut_to_their_box_find_their_landmark(subject: Evaluated, oxford: Path):
    landmarks = read_landmarks(oxford)
    result = SMALL.judged(subject, landmarks, whitening(oxford), Bench(workers=2))
    assert (result.layer, result.images, result.whitened_on) == ("conv5", 12, 6)
    assert result.levels["all"]["queries"] == 4
    assert result.levels["all"]["map"] > 0.9  # chance is about a quarter
    mean = np.mean([query.levels["all"].average_precision for query in result.queries])
    assert result.levels["all"]["map"] == pytest.approx(mean)
    # The same again, whatever the batches and threads.
    again = replace(SMALL, batch=1).judged(subject, landmarks, whitening(oxford), Bench(workers=1))
    assert again.levels == result.levels
    coarse = replace(SMALL, size=96)
    whole = replace(coarse, queries="image").judged(subject, landmarks, None, Bench())
    assert whole.queries != coarse.judged(subject, landmarks, None, Bench()).queries


def test_the_network_is_left_as_it_was(subject: Evaluated, oxford: Path):
    before = {name: tensor.clone() for name, tensor in subject.network.state_dict().items()}
    SMALL.judged(subject, read_landmarks(oxford), None, Bench())
    for name, tensor in subject.network.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_damaged_image_is_left_out_and_named(subject: Evaluated, oxford: Path, tmp_path: Path):
    (tmp_path / "images").mkdir()
    for path in (oxford / "images").iterdir():
        data = path.read_bytes()
        # One that counts for hall0, and the one that asks for hall1.
        broken = path.stem in ("hall0_000001", "hall1_000000")
        (tmp_path / "images" / path.name).write_bytes(data[:200] if broken else data)
    landmarks = read_landmarks(None, tmp_path / "images", oxford / "gt_files")
    result = SMALL.judged(subject, landmarks, None, Bench())
    assert result.images == 10
    assert [line.partition(":")[0] for line in result.unusable] == [
        "hall0_000001.png",
        "hall1_000000.png",
    ]
    assert [line.partition(":")[0] for line in result.left_out] == ["hall1_1"]
    assert result.levels["all"]["queries"] == 3


class Second(World):
    """One of two processes, of which the leading one could not use an image."""

    def gather(self, rows: Tensor) -> Tensor:
        first = np.frombuffer(b'{"a.jpg": "empty"}\n', dtype=np.uint8).copy()
        return torch.cat([torch.from_numpy(first), rows])


def test_what_one_process_cannot_use_is_known_to_all():
    name = os.fsdecode(b"\xe9.jpg")
    reasons = known_to_all({name: "truncated"}, Second(1, 2))
    assert reasons == {"a.jpg": "empty", name: "truncated"}


def judged_by_one_of_two(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    Path(folder, f"{rank}.json").write_text(json.dumps(judged_in(Path(folder), World(rank, 2))))
    dist.destroy_process_group()


def judged_in(place: Path, world: World) -> dict:
    network = untrained(Shape(input_size=64, width=8), seed=0)
    bench = Bench(world, workers=1)
    return asdict(SMALL.judged(network, read_landmarks(place), whitening(place), bench))


def test_two_processes_have_the_reasons_of_one(oxford: Path, tmp_path: Path):
    """Each has one half of the images, of those to whiten on, and of the queries."""
    place = tmp_path / "oxford"
    shutil.copytree(oxford, place)
    names = ("images/hall1_000000", "images/hall2_000000", "other/0", "other/5")
    for path in (place / f"{name}.png" for name in names):
        path.write_bytes(path.read_bytes()[:200])
    alone = judged_in(place, World())
    spawn(judged_by_one_of_two, args=(str(place),), nprocs=2)
    first, second = (json.loads((place / f"{rank}.json").read_text()) for rank in (0, 1))
    for kind in ("unusable", "left_out", "not_whitened_on"):
        assert first[kind] == alone[kind]
        assert sorted(second[kind]) == sorted(alone[kind])
        assert [": truncated" in line for line in alone[kind]] == [True, True]


def test_a_query_of_which_all_images_are_damaged_is_named(oxford: Path, tmp_path: Path):
    shutil.copytree(oxford, tmp_path / "oxford")
    place = tmp_path / "oxford"
    (place / "gt_files/hall0_1_good.txt").write_text("")  # so that it can be asked and find nothing
    photo = place / "images/hall0_000001.png"
    photo.write_bytes(photo.read_bytes()[:200])
    found = outcome(replace(SMALL, whiten_on="none"), place, tmp_path)
    expected = "hall0_1: no image that shows it can be used: hall0_000001.png: "
    (seed,) = found.result["seeds"]
    (left,) = seed["left_out"]
    assert left.startswith(expected)
    assert [query["name"] for query in seed["queries"]] == ["hall1_1", "hall2_1", "hall3_1"]
    assert any(remark.startswith(f"1 query is not asked: {expected}") for remark in found.remarks)
    assert [row[0] for row in found.tables[1].rows] == ["hall1", "hall2", "hall3"]
    for file in place.glob("gt_files/hall[123]*"):
        file.unlink()
    with pytest.raises(DataError, match=rf"no query can be asked of .*images: {expected}"):
        outcome(replace(SMALL, whiten_on="none"), place, tmp_path)


def test_a_revisited_query_is_named_only_where_no_level_has_anything_left(
    subject: Evaluated, oxford: Path, tmp_path: Path
):
    shutil.copytree(oxford / "images", tmp_path / "images")
    for name in ("hall0_000001", "hall1_000001"):
        photo = tmp_path / f"images/{name}.png"
        photo.write_bytes(photo.read_bytes()[:200])
    landmarks = read_landmarks(None, tmp_path / "images", revisited(tmp_path, hard={0: []}))
    result = SMALL.judged(subject, landmarks, None, Bench())
    (left,) = result.left_out
    assert left.startswith("hall0_000000: no image that shows it can be used: hall0_000001.png: ")
    (query,) = result.queries
    assert (query.name, list(query.levels)) == ("hall1_000000", ["medium", "hard"])
    assert [result.levels[level]["queries"] for level in ("easy", "medium", "hard")] == [0, 1, 1]


def revisited(folder: Path, hard: dict) -> Path:
    """Two queries; of each the second photograph is easy to find, and the third one hard."""
    truth = {
        "imlist": [f"hall{landmark}_00000{photo}" for landmark in (0, 1) for photo in (1, 2)],
        "qimlist": ["hall0_000000", "hall1_000000"],
        "gnd": [
            {"bbx": [0, 0, 120, 120], "easy": [2 * i], "hard": hard.get(i, [2 * i + 1]), "junk": []}
            for i in (0, 1)
        ],
    }
    file = folder / "gnd_roxford5k.json"
    file.write_text(json.dumps(truth))
    return file


def test_the_revisited_ground_truth_has_means_by_level_and_none_by_landmark(
    oxford: Path, tmp_path: Path
):
    file = revisited(tmp_path, hard={})
    found = outcome(replace(SMALL, whiten_on="none", ground_truth=str(file)), oxford, tmp_path)
    (by_level,) = found.tables
    assert [row[0] for row in by_level.rows] == ["easy", "medium", "hard"]
    assert [query["landmark"] for query in found.result["seeds"][0]["queries"]] == [None, None]


def test_a_query_whose_image_is_turned_by_exif_is_not_asked_by_its_box(
    subject: Evaluated, oxford: Path, tmp_path: Path
):
    """Its box is of the pixels as they are stored, and the image is seen upright."""
    shutil.copytree(oxford / "images", tmp_path / "images")
    path = tmp_path / "images/hall2_000000.png"
    turned = Image.Exif()
    turned[0x0112] = 6
    with Image.open(path) as image:
        image.save(path, exif=turned)
    landmarks = read_landmarks(None, tmp_path / "images", oxford / "gt_files")
    result = SMALL.judged(subject, landmarks, None, Bench())
    assert result.images == 12  # it can be found
    (left,) = result.left_out
    assert left.startswith("hall2_1: hall2_000000.png: turned by its EXIF tag")
    whole = replace(SMALL, queries="image").judged(subject, landmarks, None, Bench())
    assert whole.left_out == []


def test_queries_of_images_that_were_made_smaller_are_not_asked(oxford: Path, tmp_path: Path):
    """The boxes of their ground truth are of the images as they were."""
    place = tmp_path / "oxford"
    shutil.copytree(oxford, place)
    settings = replace(SMALL, whiten_on="none")
    path = place / "images/hall1_000000.png"
    with Image.open(path) as image:
        image.resize((80, 60)).save(path)
    why = "hall1_1: hall1_000000.png: its box reaches beyond the image; is it of another size?"
    found = outcome(settings, place, tmp_path)
    assert f"1 query is not asked: {why}" in found.remarks
    assert [one["name"] for one in found.result["seeds"][0]["queries"]] == [
        *("hall0_1", "hall2_1", "hall3_1")
    ]
    assert outcome(replace(settings, queries="image"), place, tmp_path).result["levels"]["all"][
        "queries"
    ] == len(["hall0_1", "hall1_1", "hall2_1", "hall3_1"])


@pytest.mark.parametrize("box", ["30 10 30 40", "10 40 30 20"])
def test_a_query_whose_box_has_no_area_is_not_asked(oxford: Path, tmp_path: Path, box: str):
    place = tmp_path / "oxford"
    shutil.copytree(oxford, place)
    (place / "gt_files/hall1_1_query.txt").write_text(f"oxc1_hall1_000000 {box}")
    settings = replace(SMALL, whiten_on="none")
    found = outcome(settings, place, tmp_path)
    why = "hall1_1: hall1_000000.png: its box has no area"
    assert f"1 query is not asked: {why}" in found.remarks
    asked = [one["name"] for one in found.result["seeds"][0]["queries"]]
    assert asked == ["hall0_1", "hall2_1", "hall3_1"]
    whole = outcome(replace(settings, queries="image"), place, tmp_path)
    assert whole.result["levels"]["all"]["queries"] == 4


def test_images_that_cannot_be_used_are_counted_in_whole_sentences(oxford: Path, tmp_path: Path):
    shutil.copytree(oxford, place := tmp_path / "oxford")
    settings = replace(SMALL, whiten_on="none")
    damaged = []
    for count, verb in (
        (1, "1 image cannot be used and is"),
        (2, "2 images cannot be used and are"),
    ):
        path = place / f"images/hall{count}_000002.png"
        path.write_bytes(b"nothing")
        damaged.append(f"{path.name}: not an image")
        said = f"{verb} left out: {', '.join(damaged)}"
        assert said in outcome(settings, place, tmp_path / str(count)).remarks


def test_what_was_kept_while_boxes_were_cut_is_taken_up_where_none_was(
    oxford: Path, tmp_path: Path
):
    place = tmp_path / "oxford"
    shutil.copytree(oxford, place)
    asked: list[dict] = []

    class Noting(Stages):
        def __call__(self, name, key, compute):
            asked.append(key)
            return super().__call__(name, key, compute)

    def key_of(box: str) -> dict:
        (place / "gt_files/hall0_1_query.txt").write_text(f"oxc1_hall0_000000 {box}")
        settings = replace(SMALL, whiten_on="none")
        contender = Contender("random", lambda seed: untrained(Shape(input_size=64, width=8), 0))
        settings(contender, Material(place), Bench(), Noting(RunFolder(tmp_path)))
        return asked[-1]

    # All that earlier versions knew it by, and no more.
    assert {*key_of("0 0 160 121")} == {"data", "whitening", "settings", "network"}
    assert key_of("0 0 160 140")["not_asked"] == ["hall0_000000.png"]


def test_images_of_which_nothing_finite_is_said_have_no_order(oxford: Path):
    broken = untrained(Shape(input_size=64, width=8), seed=0)
    with torch.no_grad():
        for weight in broken.network.trunk.parameters():
            weight.fill_(torch.inf)
    landmarks = read_landmarks(oxford)
    with pytest.raises(NumericsError, match="is not finite"):
        SMALL.judged(broken, landmarks, None, Bench())


def test_a_damaged_image_to_whiten_on_is_named(oxford: Path, tmp_path: Path):
    shutil.copytree(oxford / "other", tmp_path / "other")
    (tmp_path / "other/3.png").write_bytes((oxford / "other/3.png").read_bytes()[:200])
    found = outcome(replace(SMALL, whiten_on=str(tmp_path / "other")), oxford, tmp_path)
    assert found.result["seeds"][0]["whitened_on"] == 5
    (remark,) = found.remarks
    assert remark.startswith("1 image to learn the whitening on cannot be used: 3.png: ")


def test_any_layer_of_any_network(oxford: Path):
    resnet = untrained(Shape(arch="resnet18", front="rgb", input_size=64), seed=0)
    bench = Bench()
    assert map_layer(resnet.network, None, bench) == "layer4"
    result = replace(SMALL, layer="layer2").judged(resnet, read_landmarks(oxford), None, bench)
    assert (result.layer, result.width) == ("layer2", 128)
    google = untrained(Shape(arch="googlenet", input_size=64), seed=0)  # conv3 comes early in it
    assert map_layer(google.network, None, bench) == "inception5b"
    for size in (64, 128):
        plain = untrained(Shape(input_size=size, width=8), seed=0).network
        assert map_layer(plain, None, bench) == "conv5"
    with pytest.raises(UsageError, match="fc6"):
        map_layer(plain, "fc6", bench)
    with pytest.raises(UsageError, match="conv9"):
        map_layer(plain, "conv9", bench)


def test_images_to_whiten_on_that_are_all_gone_are_refused_with_the_reason(
    oxford: Path, tmp_path: Path
):
    listed = tmp_path / "gone.txt"
    for names, said in (("a.png\nb.png\n", "2 images"), ("a.png\n", "1 image")):
        listed.write_text(names)
        with pytest.raises(DataError, match=rf"none of {said} can be used: a\.png: .*no such file"):
            outcome(replace(SMALL, whiten_on=str(listed)), oxford, tmp_path)


def test_where_the_whitening_is_learnt(oxford: Path, tmp_path: Path):
    with pytest.raises(UsageError, match="--whiten-on DIR"):
        whitening_source(None)
    assert whitening_source("none") is None
    found = whitening_source(str(oxford))
    assert found is not None
    assert found.place == oxford / "images"  # another city is known by its layout
    with pytest.raises(DataError, match="0 images"):
        whitening_source(str(tmp_path))


SHAPE = Shape(input_size=64, width=8)


def outcome(settings: Retrieval, oxford: Path, out: Path, shape: Shape = SHAPE) -> Outcome:
    def network(seed: int) -> Evaluated:
        return untrained(shape, seed)

    material, stages = Material(oxford), Stages(RunFolder(out))
    return settings(Contender("random", network), material, Bench(), stages)


def test_seeds_stages_and_what_the_tables_say(oxford: Path, tmp_path: Path):
    settings = replace(SMALL, whiten_on=str(oxford / "other"), seeds=(0, 1))
    first = outcome(settings, oxford, tmp_path)
    assert json.loads(json.dumps(first.result)) == first.result
    figures = [seed["levels"]["all"]["map"] for seed in first.result["seeds"]]
    assert first.result["levels"]["all"]["map"] == pytest.approx(np.mean(figures))
    assert first.result["levels"]["all"]["spread"] == pytest.approx(np.std(figures, ddof=1))
    overall, by_landmark = first.tables
    assert [row[0] for row in overall.rows] == ["all"]
    assert [row[0] for row in by_landmark.rows] == [f"hall{number}" for number in range(4)]
    assert outcome(settings, oxford, tmp_path).result == first.result  # seconds too: kept
    assert len(list((tmp_path / "stages").iterdir())) == 2
    assert first.remarks == []


def test_a_whitening_of_fewer_dimensions_is_remarked_on_whenever_it_is_shown(
    oxford: Path, tmp_path: Path
):
    """Six images have some 60 regions, which bear 8 dimensions; the layer has 256 maps."""
    settings = replace(SMALL, whiten_on=str(oxford / "other"), dimensions=None)
    said = "the whitening has 8 dimensions instead of {}: the regions of 6 images bear no more"
    with pytest.warns(DimensionsShrunk):
        assert outcome(settings, oxford, tmp_path).remarks == [said.format(256)]
    assert outcome(settings, oxford, tmp_path).remarks == [said.format(256)]  # kept
    with pytest.warns(DimensionsShrunk):
        found = outcome(replace(settings, dimensions=9), oxford, tmp_path)
    assert found.remarks == [said.format(9)]
    assert found.settled["dimensions"] == 8
    place = tmp_path / "oxford"
    shutil.copytree(oxford, place)
    (place / "images/hall1_000000.png").unlink()
    with pytest.warns(DimensionsShrunk):
        remarks = outcome(settings, place, tmp_path).remarks
    assert remarks[-1] == said.format(256)
    assert "1 query is not asked" in " ".join(remarks)


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        (8, "16 dimensions instead of 1,000: the layer has 16 channels"),
        (
            3,
            "8 dimensions instead of 1,000: the layer has 16 channels, and the regions of 6 images "
            "bear no more",
        ),
    ],
)
def test_a_whitening_of_more_dimensions_than_the_layer_has_channels(
    oxford: Path, tmp_path: Path, levels: int, said: str
):
    """Eight sizes of regions are more than 20 regions for each channel; three are some 60."""
    other = str(oxford / "other")
    first = Retrieval(other, layer="features.1", size=160, levels=levels, dimensions=1_000)
    shape = Shape(arch="mobilenet_v2", front="rgb", input_size=64)
    with pytest.warns(DimensionsShrunk):
        (remark,) = outcome(first, oxford, tmp_path, shape).remarks
    assert remark == f"the whitening has {said}"


@pytest.mark.parametrize("copied", [False, True])
def test_whitening_on_images_that_are_searched_is_remarked_on(
    oxford: Path, tmp_path: Path, copied: bool
):
    place = oxford / "images"
    if copied:  # a part of them, in a folder of a folder, among others
        shutil.copytree(place, tmp_path / "copy/all")
        (tmp_path / "copy/all/hall0_000001.png").unlink()
        (tmp_path / "copy/all/hall0_000002.png").write_bytes(b"another image of that name")
        shutil.copytree(oxford / "other", tmp_path / "copy/other")
        place = tmp_path / "copy"
    said = outcome(replace(SMALL, whiten_on=str(place)), oxford, tmp_path).remarks
    count = "10 of the 17" if copied else "12 of the 12"
    assert said[-1] == (
        f"{count} images of {place}, on which the whitening was learnt, are images that are "
        "searched, by name and size; the paper's is learnt on others"
    )


def written_off(place: Path, title: str) -> list[Path]:
    """A query of the ground truth whose image is not there."""
    files = [place / f"gt_files/{title}_{kind}.txt" for kind in ("query", "good", "ok", "junk")]
    for file in files:
        file.write_text(f"oxc1_{title} 0 0 9 9" if file.name.endswith("query.txt") else "")
    return files


def test_what_is_kept_says_nothing_of_an_earlier_ground_truth(oxford: Path, tmp_path: Path):
    """Queries that cannot be asked change no figure: what was found is kept, but no remark."""
    place = tmp_path / "oxford"
    shutil.copytree(oxford, place)
    settings = replace(SMALL, whiten_on="none")
    files = written_off(place, "tower_1")
    first = outcome(settings, place, tmp_path)
    assert first.result["seeds"][0]["left_out"] == ["tower_1: its image tower_1 is not there"]
    for file in files:
        file.unlink()
    written_off(place, "spire_1")
    second = outcome(settings, place, tmp_path)
    (stage,) = (tmp_path / "stages").iterdir()
    assert "spire_1" in " ".join(second.remarks)
    assert "tower_1" not in " ".join(second.remarks) + json.dumps(second.result)
    assert second.result["seeds"][0]["absent"] == ["spire_1"]
    # Earlier versions have kept both, beside a query whose image is damaged.
    kept = json.loads(stage.read_text())
    damaged = f"{kept['queries'].pop()['name']}: hall3_000000.png: broken"
    kept |= {"absent": ["tower_1"], "left_out": [*first.data["left_out"], damaged]}
    stage.write_text(json.dumps(kept))
    third = outcome(settings, place, tmp_path)
    left = ["spire_1: its image spire_1 is not there", damaged]
    assert third.result["seeds"][0]["left_out"] == left
    assert f"2 queries are not asked: {', '.join(left)}" in third.remarks
    assert "tower_1" not in " ".join(third.remarks) + json.dumps(third.result)


def test_absent_images_are_remarked_on(oxford: Path, tmp_path: Path):
    shutil.copytree(oxford, tmp_path / "oxford")
    (tmp_path / "oxford/images/hall0_000001.png").unlink()
    (tmp_path / "oxford/images/hall1_000000.png").unlink()
    result = outcome(replace(SMALL, whiten_on="none"), tmp_path / "oxford", tmp_path)
    said = " ".join(result.remarks)
    assert "2 images that the ground truth names are not there: hall0_000001, hall1_000000" in said
    assert "1 query is not asked: hall1_1: its image hall1_000000 is not there" in said
    assert "not whitened" in said
    assert result.data["absent"] == ["hall0_000001", "hall1_000000"]


@pytest.mark.parametrize("change", [{"size": 32}, {"levels": 0}, {"batch": 0}, {"dimensions": 0}])
def test_settings_that_make_no_sense(change: dict):
    with pytest.raises(UsageError, match=f"--{next(iter(change))}"):
        replace(SMALL, **change).validate()
