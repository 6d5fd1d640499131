"""What the site answers, and to whom."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import shutil
import socket
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import anyio
import child
import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from deepcluster import explore_command
from deepcluster.cli import main
from deepcluster.clusters import nearest
from deepcluster.collection import kept_features
from deepcluster.collection.groups import whitened_rows
from deepcluster.collection.kept_features import KeptFeatures
from deepcluster.explorer.exploration import Exploration, View
from deepcluster.explorer.guard import App
from deepcluster.explorer.merge_tree import MergeTree
from deepcluster.explorer.pictures import Pictures
from deepcluster.explorer.query import Answer, Query
from deepcluster.explorer.server import listening
from deepcluster.explorer.site import LARGEST_UPLOAD, site_of
from deepcluster.images import album
from deepcluster.images.folder import decoded
from deepcluster.report import write_report
from deepcluster.report.edits import Edits
from deepcluster.runtime.errors import DataError, ResumeError, UsageError
from deepcluster.runtime.run_folder import RunFolder

SECRET = "a-secret"
HOST = "127.0.0.1:8765"
OWN = {"origin": f"http://{HOST}"}


def opened(run: Path) -> App:
    folder = RunFolder(run)
    exploration = Exploration(folder)
    return site_of(exploration, Pictures(folder), Query(folder, "cpu"), 8765, SECRET)


@pytest.fixture(scope="module")
def site(run: Path) -> Iterator[TestClient]:
    """The site of a run, for what changes nothing."""
    with TestClient(opened(run), f"http://{HOST}/{SECRET}/") as client:
        yield client


@pytest.fixture(scope="module")
def app(run: Path) -> App:
    """The same, to be asked in ways in which no client would."""
    return opened(run)


@pytest.fixture
def own_run(run: Path, tmp_path: Path) -> Path:
    """A copy of the run, to be changed."""
    leave = shutil.ignore_patterns("checkpoints", "report")
    return Path(shutil.copytree(run, tmp_path / "run", ignore=leave))


@pytest.fixture
def own_site(own_run: Path) -> Iterator[TestClient]:
    with TestClient(opened(own_run), f"http://{HOST}/{SECRET}/", headers=OWN) as client:
        yield client


def answered(app: App, path: str, headers: dict[str, str] | None = None, method: str = "GET"):
    """Status, headers and body of a request whose path reaches the site as it is written here."""
    sent: list[dict] = []

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        sent.append(message)

    given = {"host": HOST} | (headers or {})
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(errors="surrogateescape"),
        "root_path": "",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
    }
    anyio.run(app, scope, receive, send)
    body = b"".join(message.get("body", b"") for message in sent[1:])
    return sent[0]["status"], dict(sent[0]["headers"]), body


class Elements(HTMLParser):
    """Every element with its attributes, and the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


# ---- who may ask ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "evil.com",
        "evil.com:8765",
        "127.0.0.1",
        "127.0.0.1:8766",
        f"{HOST}.evil.com",
        "",
        "a b",
        "é",
    ],
)
def test_another_host_is_refused(app: App, host: str):
    assert answered(app, f"/{SECRET}/", {"host": host})[0] == 421


def test_two_hosts_are_refused(app: App):
    assert answered(app, f"/{SECRET}/", {"host": HOST, "Host": "evil.com"})[0] == 421


@pytest.mark.parametrize("host", ["localhost:8765", "LOCALHOST:8765", "[::1]:8765"])
def test_other_names_of_this_machine_are_fine(app: App, host: str):
    assert answered(app, f"/{SECRET}/api/groups", {"host": host})[0] == 200


@pytest.mark.parametrize(
    "path", ["/", "/api/groups", "/a-secre/", "/a-secret2/", "//", "/A-SECRET/", "/é/", "/\udcff/"]
)
def test_without_the_secret_nothing_is_told(app: App, path: str):
    status, _, body = answered(app, path)
    assert status == 403
    assert SECRET.encode() not in body


def test_the_slash_at_the_end_is_found(app: App):
    status, headers, _ = answered(app, f"/{SECRET}")
    assert (status, headers[b"location"]) == (308, f"/{SECRET}/".encode())


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.com"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},  # another port of this machine
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_pages_are_refused(app: App, headers: dict[str, str], method: str):
    path = f"/{SECRET}/api/{'groups' if method == 'GET' else 'undo'}"
    assert answered(app, path, headers, method)[0] == 403


def test_what_changes_something_must_say_where_it_comes_from(own_run: Path):
    app = opened(own_run)
    assert answered(app, f"/{SECRET}/api/undo", {}, "POST")[0] == 403
    visit = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert answered(app, f"/{SECRET}/api/undo", visit | OWN, "POST")[0] == 403
    assert answered(app, f"/{SECRET}/api/undo", OWN, "POST")[0] == 200
    assert answered(app, f"/{SECRET}/", visit)[0] == 200  # a link to the printed address is fine
    assert answered(app, f"/{SECRET}/api/undo", OWN, "GET")[0] == 405


def test_every_answer_has_the_policy(app: App):
    for path in (f"/{SECRET}/", f"/{SECRET}/nothing", "/", f"/{SECRET}/thumbnails/0.jpg"):
        _, headers, _ = answered(app, path)
        assert headers[b"content-security-policy"].startswith(
            b"default-src 'none'; script-src 'self'"
        )
        assert b"unsafe" not in headers[b"content-security-policy"]
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"referrer-policy"] == b"no-referrer"
        assert not any(name.startswith(b"access-control") for name in headers)


@pytest.mark.parametrize(
    "path",
    [
        "../canary.txt",
        "thumbnails/../../canary.txt",
        "thumbnails/%2e%2e/%2e%2e/canary.txt",
        "thumbnails/..%252f..%252fcanary.txt",
        "/etc/passwd",
        "file:///etc/passwd",
        "thumbnails/0.jpg\0.txt",
        "thumbnails/-1.jpg",
        "thumbnails/1e3.jpg",
        "thumbnails/0x1.jpg",
        "thumbnails/٣.jpg",
        "thumbnails/36.jpg",
        "pictures/36.jpg",
        f"thumbnails/{'9' * 30}.jpg",
        f"thumbnails/{'9' * 5000}.jpg",
        "thumbnails/",
        "groups/6.html",
        f"groups/{'9' * 30}.html",
        "api/images/36",
        "api/groups/6",
        "data/../page.js",
        "data/other.js",
        "explored_run.html",
        "settings.json",
        "templates/explore.js",
    ],
)
def test_only_what_is_meant_is_served(app: App, run: Path, path: str):
    (run.parent / "canary.txt").write_text("canary")
    status, _, body = answered(app, f"/{SECRET}/{path}")
    assert status in (404, 414)
    assert b"canary" not in body
    assert b"root:" not in body


# ---- the pages -----------------------------------------------------------------------------------


def test_names_of_files_stay_names(site: TestClient, images: Path, run: Path):
    table = child.table(run / "clusters.parquet")
    names = set()
    for place in ["", *(f"groups/{group}.html" for group in sorted({*table["cluster"]}))]:
        page = Elements(site.get(place).text)
        names |= {given["alt"] for tag, given in page.found if tag == "img"}
        for tag, given in page.found:
            assert not any(name.startswith("on") or name == "style" for name in given)
            assert tag != "script" or given["src"]
    assert {*table["path"]} <= names
    assert sum("<script>" in (name or "") for name in names) == 1


def test_names_are_searched_among_all_images(site: TestClient, run: Path, monkeypatch):
    monkeypatch.setattr("deepcluster.explorer.site._MATCHES", 5)
    table = child.table(run / "clusters.parquet")
    for part in ("PNG", "<sCript>", "e", "[", "no such name"):
        found = [n for n, path in enumerate(table["path"]) if part.lower() in path.lower()]
        told = site.get("api/names", params={"part": part}).json()
        assert told["count"] == len(found)
        assert told["groups"] == sorted({table["cluster"][n] for n in found})
        assert told["lines"] == [[table["path"][n], table["cluster"][n]] for n in found[:5]]
    for part in ("", "x" * 201):
        assert site.get("api/names", params={"part": part}).status_code == 400


def test_a_group_says_its_images_in_parts(site: TestClient, run: Path, monkeypatch):
    monkeypatch.setattr("deepcluster.explorer.site.PAGE", 4)
    monkeypatch.setattr("deepcluster.explorer.exploration.PAGE", 4)
    table = child.table(run / "clusters.parquet")
    group = max(table["cluster"], key=table["cluster"].count)
    own = [n for n, cluster in enumerate(table["cluster"]) if cluster == group]
    assert len(own) > 5
    page = Elements(site.get(f"groups/{group}.html").text)
    wall = next(n for n, (_, given) in enumerate(page.found) if given.get("id") == "members")
    first = [given["data-image"] for _, given in page.found[wall:] if "data-image" in given]
    found = [int(image or "") for image in first]
    more = next(given for _, given in page.found if given.get("id") == "more")
    assert (len(found), more["data-start"]) == (4, "4")
    while len(found) < len(own):
        told = site.get(f"api/groups/{group}?start={len(found)}").json()
        assert told["size"] == len(own)
        found += [one["image"] for one in told["images"]]
    assert sorted(found) == own
    distances = [table["distance"][image] for image in found]
    assert distances == sorted(distances)
    assert site.get(f"api/groups/{group}?start=-1").status_code == 400
    assert site.get(f"api/groups/{group}?start=1e9").status_code == 400


def test_neighbours_are_the_nearest(site: TestClient, run: Path, monkeypatch):
    monkeypatch.setattr(kept_features, "_ROWS", 7)  # so that there are several parts
    rows = whitened_rows(RunFolder(run))
    for image in (0, 17, 35):
        expected = nearest(rows[image : image + 1], rows, 24, skip_self_from=image)
        found = site.get(f"api/images/{image}").json()["neighbours"]
        assert [one["image"] for one in found] == expected.index[0].tolist()
        assert [one["distance"] for one in found] == pytest.approx(
            expected.distance[0].sqrt().tolist(), abs=1e-4
        )


def test_ties_do_not_depend_on_the_parts(run: Path, tmp_path: Path, monkeypatch):
    folder = RunFolder(tmp_path)
    folder.write_array("features.npy", np.repeat(np.eye(2, dtype=np.float16), 20, axis=0))
    monkeypatch.setattr(RunFolder, "verified", lambda self, name: self.path / name)
    for rows in (3, 7, 100):
        monkeypatch.setattr(kept_features, "_ROWS", rows)
        features = kept_features.KeptFeatures(folder, 40)
        near = features.nearest(np.array([0, 1], dtype=np.float32), 5, leave_out=22)
        assert [one.image for one in near] == [20, 21, 23, 24, 25]
    with pytest.raises(ResumeError, match="one row for each image"):
        kept_features.KeptFeatures(folder, 41)


def test_middles_are_means(run: Path):
    folder = RunFolder(run)
    labels = np.array(child.table(run / "clusters.parquet")["cluster"])
    rows = whitened_rows(folder).double().numpy()
    groups = np.unique(labels)
    middles, within = kept_features.KeptFeatures(folder, len(rows)).middles(labels, groups)
    means = np.stack([rows[labels == group].mean(axis=0) for group in groups])
    np.testing.assert_allclose(middles, means, atol=1e-6)
    inside = sum(np.square(rows[labels == g] - means[i]).sum() for i, g in enumerate(groups))
    assert within == pytest.approx(inside, rel=1e-5)


def test_fewer_groups(site: TestClient, run: Path):
    labels = np.array(child.table(run / "clusters.parquet")["cluster"])
    groups = len(np.unique(labels))
    tree = site.get("api/tree").json()
    assert tree["groups"] == len(tree["ends"]) == groups
    kept = []
    for count in range(1, groups + 1):
        told = site.get(f"api/cut?count={count}").json()
        cards = told["cards"]
        assert len(cards) == count
        assert sum(card["size"] for card in cards) == len(labels)
        assert sorted(group for card in cards for group in card["groups"]) == sorted({*labels})
        for card in cards:
            shown = [one["image"] for one in card["images"]]
            assert len({*shown}) == len(shown) == min(8, card["size"])
            assert {*labels[shown]} <= {*card["groups"]}
        kept.append(told["kept"])
    assert kept == sorted(kept)
    assert site.get(f"api/cut?count={groups + 1}").status_code == 400
    assert site.get("api/cut?count=0").status_code == 400
    assert site.get("api/cut").status_code == 400


def test_what_should_not_happen_is_said_in_the_terminal(run: Path, monkeypatch):
    def broken(self: View) -> None:
        raise ValueError("<b>secret</b>")

    monkeypatch.setattr(View, "crown", broken)
    folder, said = RunFolder(run), list[str]()
    app = site_of(
        Exploration(folder), Pictures(folder), Query(folder, "cpu"), 8765, SECRET, said.append
    )
    with TestClient(app, f"http://{HOST}/{SECRET}/", raise_server_exceptions=False) as client:
        reply = client.get("api/tree")
    assert reply.status_code == 500
    assert reply.json() == {"error": "Something went wrong; see the terminal."}
    assert said == ["unexpected ValueError: <b>secret</b>"]


# ---- pictures from outside -----------------------------------------------------------------------


def chunk(kind: bytes, content: bytes) -> bytes:
    sealed = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + sealed


def bomb(side: int) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")


def test_search_by_image(site: TestClient, run: Path, images: Path):
    table = child.table(run / "clusters.parquet")
    for number in (0, 20):
        content = (images / decoded(table["path"][number])).read_bytes()
        told = site.post("api/search", content=content, headers=OWN).json()
        assert told["group"] == table["cluster"][number]
        assert told["distance"] == pytest.approx(table["distance"][number], abs=1e-3)
        assert told["neighbours"][0]["image"] == number
        assert told["neighbours"][0]["distance"] < 0.01
        assert told["none"] == (told["distance"] > np.quantile(table["distance"], 0.99))
    for content, sentence in [
        (b"", "empty file"),
        (b"<svg onload='alert(1)'/>", "not an image"),
        (bomb(40_000), "too many pixels (1600 MP > --max-pixels 80 MP): deepcluster tile cuts it"),
        (bomb(9_500), "too many pixels (90 MP > --max-pixels 80 MP): deepcluster tile cuts it"),
        (bomb(100), "truncated"),
    ]:
        reply = site.post("api/search", content=content, headers=OWN)
        assert reply.status_code == 400
        assert reply.json()["error"] == f"that file cannot be used: {sentence}"
    whole = io.BytesIO()
    Image.new("CMYK", (300, 20)).save(whole, "JPEG")
    assert site.post("api/search", content=whole.getvalue(), headers=OWN).status_code == 200


def test_too_large_an_upload_is_not_even_read(site: TestClient):
    reply = site.post("api/search", content=bytes(LARGEST_UPLOAD + 1), headers=OWN)
    assert (reply.status_code, reply.json()) == (413, {"error": "That is larger than 20 MB."})
    claimed = OWN | {"content-length": "9" * 40}
    assert site.post("api/search", content=b"x", headers=claimed).status_code == 413

    def endless() -> Iterator[bytes]:
        for _ in range(21):
            yield bytes(2**20)

    assert site.post("api/search", content=endless(), headers=OWN).status_code == 413
    assert site.post("api/name", content=bytes(2**20 + 1), headers=OWN).status_code == 413


def test_others_are_answered_while_a_picture_is_looked_at(run: Path, monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def slow(self: Query, content: bytes) -> Answer:
        begun.set()
        assert ended.wait(30)
        raise DataError("it was slow")

    monkeypatch.setattr(Query, "answer", slow)
    statuses = []
    with TestClient(opened(run), f"http://{HOST}/{SECRET}/", headers=OWN) as client:
        search = threading.Thread(
            target=lambda: statuses.append(client.post("api/search", content=b"x").status_code)
        )
        search.start()
        assert begun.wait(30)
        for place in ("", "thumbnails/0.jpg", "api/images/0", "api/cut?count=2"):
            assert client.get(place).status_code == 200
        assert statuses == []
        ended.set()
        search.join()
    assert statuses == [400]


# ---- edits ---------------------------------------------------------------------------------------


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_naming_moving_merging_undoing(own_site: TestClient, own_run: Path, images: Path):
    before, photos = hashes(own_run), hashes(images)
    labels = child.table(own_run / "clusters.parquet")["cluster"]
    one, other, third = sorted({*labels})[:3]

    def groups() -> dict[int, tuple[str, int]]:
        told = own_site.get("api/groups").json()["groups"]
        return {entry["group"]: (entry["title"], entry["size"]) for entry in told}

    name = "<b>cats</b> & 'dogs'"
    told = own_site.post("api/name", json={"group": one, "name": f"  {name} \n"}).json()
    assert told["title"] == f"Group {one}: {name}"
    assert told["last"] == f"group {one} is called {name}"
    assert f"Group {one}: &lt;b&gt;cats" in own_site.get("").text

    moved = [n for n, label in enumerate(labels) if label == one][:2]
    own_site.post("api/move", json={"images": moved, "group": other})
    assert groups()[one][1] == labels.count(one) - 2
    assert groups()[other][1] == labels.count(other) + 2
    assert own_site.get(f"api/images/{moved[0]}").json()["group"] == other
    page = Elements(own_site.get(f"groups/{other}.html").text)
    shown = {given.get("data-image") for tag, given in page.found if tag == "figure"}
    assert {str(number) for number in moved} <= shown

    new = own_site.post("api/move", json={"images": [moved[0]], "group": None}).json()["group"]
    assert new == max(labels) + 1
    assert groups()[new] == (f"Group {new}", 1)

    into = own_site.post("api/merge", json={"groups": [new, third]}).json()["group"]
    assert into == third
    assert new not in groups()
    assert own_site.get(f"groups/{new}.html").status_code == 404
    assert sum(size for _, size in groups().values()) == len(labels)

    # Kept: another explorer and the report see the same.
    again = Exploration(RunFolder(own_run)).view
    assert again.title(one) == f"Group {one}: {name}"
    assert again.record.labels[moved].tolist() == [third, other]
    written = write_report(RunFolder(own_run)).read_text()
    assert f"Group {one}: &lt;b&gt;cats" in written

    counts = [own_site.post("api/undo").json()["edits"] for _ in range(5)]
    assert counts == [3, 2, 1, 0, 0]
    assert {group: size for group, (_, size) in groups().items()} == {
        group: labels.count(group) for group in {*labels}
    }
    kept = hashes(own_run)
    assert {name: kept[name] for name in before} == before  # no result was changed,
    assert hashes(images) == photos  # and no image


def test_a_moved_image_is_as_far_as_it_is_from_its_new_group(own_run: Path):
    exploration = Exploration(RunFolder(own_run))
    labels = exploration.view.record.labels
    target = int(labels[labels != labels[0]][0])
    exploration.move([0], target)
    view = exploration.view
    rows = whitened_rows(RunFolder(own_run)).numpy()
    own = rows[view.record.labels == target]
    assert view.record.distances[0] == pytest.approx(
        np.linalg.norm(rows[0] - own.mean(axis=0)), abs=1e-4
    )
    untouched = view.record.labels == labels
    untouched &= view.record.labels != target
    before = exploration._base.distances
    assert (view.record.distances[untouched] == before[untouched]).all()


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("name", {"group": 99, "name": "x"}),
        ("name", {"group": 0, "name": "x" * 81}),
        ("name", {"group": 0, "name": "\u202egpj"}),
        ("name", {"group": "0", "name": "x"}),
        ("name", ["group"]),
        ("move", {"images": [], "group": 0}),
        ("move", {"images": [36], "group": 0}),
        ("move", {"images": [-1], "group": 0}),
        ("move", {"images": [True], "group": 0}),
        ("move", {"images": [0], "group": 99}),
        ("move", {"images": [0.5], "group": 0}),
        ("move", {"images": [10**30], "group": 0}),
        ("move", {"images": [0]}),
        ("merge", {"groups": [0]}),
        ("merge", {"groups": [0, 99]}),
        ("merge", {"groups": [0, 0]}),
        ("merge", {}),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    own_site: TestClient, own_run: Path, place: str, content: object
):
    reply = own_site.post(f"api/{place}", json=content)
    assert reply.status_code == 400
    assert len(reply.json()["error"].split()) > 2
    assert not (own_run / "explorer.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"\xff"])
def test_what_is_no_json_is_refused(own_site: TestClient, content: bytes):
    reply = own_site.post("api/name", content=content)
    assert (reply.status_code, reply.json()) == (400, {"error": "that is no JSON"})


def test_export(own_site: TestClient, own_run: Path):
    table = child.table(own_run / "clusters.parquet")
    risky = next(n for n, path in enumerate(table["path"]) if path.startswith("=cmd"))
    group = table["cluster"][risky]
    own_site.post("api/name", json={"group": group, "name": "@SUM(1)"})
    reply = own_site.get("export.csv")
    assert reply.headers["content-disposition"] == 'attachment; filename="groups.csv"'
    rows = rows_of(reply.text)
    assert [int(row["id"]) for row in rows] == list(range(36))
    assert [int(row["group"]) for row in rows] == table["cluster"]
    assert rows[risky]["path"] == "'" + table["path"][risky]
    assert rows[risky]["name"] == "'@SUM(1)"
    others = [n for n in range(36) if n != risky]
    assert [rows[n]["path"] for n in others] == [table["path"][n] for n in others]

    one = rows_of(own_site.get(f"export.csv?group={group}").text)
    assert sorted(int(row["id"]) for row in one) == [
        n for n, cluster in enumerate(table["cluster"]) if cluster == group
    ]
    chosen = rows_of(own_site.post("export.csv", json={"images": [risky, 3]}).text)
    assert [int(row["id"]) for row in chosen] == [risky, 3]
    assert own_site.post("export.csv", json={"images": [36]}).status_code == 400

    merged = rows_of(own_site.get("export.csv?count=2").text)
    cards = own_site.get("api/cut?count=2").json()["cards"]
    for row in merged:
        card = next(card for card in cards if int(row["group"]) in card["groups"])
        assert int(row["merged"]) == card["groups"][0]


def test_edits_of_another_grouping_are_put_aside(own_run: Path):
    folder = RunFolder(own_run)
    exploration = Exploration(folder)
    exploration.name(0, "cats")
    closing = json.loads((own_run / "closing.json").read_text())
    content = (own_run / "clusters.parquet").read_bytes()
    (own_run / "clusters.parquet").write_bytes(content)
    # The run was trained on: its groups are others now.
    steps = Edits.read(folder).steps
    other = {"format": 1, "grouping": "of before", "steps": steps}
    folder.write("explorer.json", json.dumps(other))
    assert closing["sha256"]["clusters.parquet"] != "of before"
    assert Exploration(folder).view.record.group_names == {}
    assert "names and moves of an earlier grouping" in write_report(folder).read_text()
    Exploration(folder).name(1, "dogs")
    assert Exploration(folder).view.record.group_names == {1: "dogs"}
    assert json.loads((own_run / "explorer-1.json").read_text())["steps"] == [*steps]


@pytest.mark.parametrize(
    "content", ["", "[]", '{"steps": [{"move": ["../x"], "to": 0}], "grouping": ""}', "{}"]
)
def test_damaged_edits_are_named(own_run: Path, content: str):
    (own_run / "explorer.json").write_text(content)
    with pytest.raises(ResumeError, match=r"explorer\.json cannot be read"):
        Exploration(RunFolder(own_run))
    assert "explorer.json cannot be read" in write_report(RunFolder(own_run)).read_text()


# ---- pictures of images --------------------------------------------------------------------------


@pytest.fixture
def bare(own_run: Path, images: Path, tmp_path: Path) -> tuple[Path, Path]:
    """A run that keeps no pictures, and a copy of its images that may be changed."""
    shutil.rmtree(own_run / "thumbnails")
    shutil.rmtree(own_run / "store", ignore_errors=True)
    copy = Path(shutil.copytree(images, tmp_path / "images"))
    settings = json.loads((own_run / "settings.json").read_text())
    (own_run / "settings.json").write_text(json.dumps(settings | {"images": str(copy)}))
    return own_run, copy


def test_pictures_are_made_of_the_files_that_were_indexed(bare: tuple[Path, Path]):
    run, images = bare
    paths = child.table(run / "clusters.parquet")["path"]
    first, second, third, fourth = (images / decoded(path) for path in paths[:4])
    second.unlink()
    third.unlink()
    secret = images.parent / "secret.png"
    Image.new("RGB", (72, 72), "red").save(secret)
    third.symlink_to(secret)
    fourth.write_bytes(fourth.read_bytes() + b"more")
    with TestClient(opened(run), f"http://{HOST}/{SECRET}/") as client:
        for place in ("thumbnails", "pictures"):
            reply = client.get(f"{place}/0.jpg")
            assert reply.headers["content-type"] == "image/jpeg"
            made = np.asarray(Image.open(io.BytesIO(reply.content)).convert("L"), dtype=float)
            with Image.open(first) as original:
                grey = np.asarray(original.convert("L"), dtype=float)
            assert np.abs(made - grey).mean() < 8
            assert not Image.open(io.BytesIO(reply.content)).getexif()
            for number in (1, 2, 3):  # gone, another one in its place, changed
                reply = client.get(f"{place}/{number}.jpg")
                assert (reply.status_code, reply.headers["content-type"]) == (200, "image/svg+xml")
                tile = Elements(reply.text)
                assert {tag for tag, _ in tile.found} == {"svg", "rect", "g", "text"}
                assert "".join(tile.words) == paths[number][:48]


def test_a_pipe_in_place_of_an_image_does_not_stall(bare: tuple[Path, Path]):
    run, images = bare
    file = images / decoded(child.table(run / "clusters.parquet")["path"][0])
    file.unlink()
    os.mkfifo(file)
    assert Pictures(RunFolder(run)).small(0) is None


# ---- the command ---------------------------------------------------------------------------------


def test_a_busy_port_is_passed_over():
    with listening(18_765) as first:
        number = first.getsockname()[1]
        with listening(number) as second:
            assert second.getsockname()[1] > number
            assert second.getsockname()[0] == "127.0.0.1"


def test_a_port_that_may_not_be_used_is_said(monkeypatch):
    def refused(self, place):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refused)
    with pytest.raises(UsageError, match="--port 80 cannot be used: permission denied"):
        listening(80)


def complaint(words: list[str], capsys) -> tuple[int, str]:
    code = main(["explore", *words])
    return code, capsys.readouterr().err


def test_what_cannot_be_explored(own_run: Path, capsys, monkeypatch, tmp_path: Path):
    code, said = complaint([str(tmp_path / "nowhere")], capsys)
    assert (code, "no such run" in said) == (2, True)
    code, said = complaint([str(own_run), "--port", "0"], capsys)
    assert (code, "ports are from 1 to 65535" in said) == (2, True)
    code, said = complaint([str(own_run), "--host", "0.0.0.0"], capsys)
    assert (code, "no such option --host" in said) == (2, True)
    monkeypatch.setattr(explore_command, "find_spec", lambda name: None)
    code, said = complaint([str(own_run)], capsys)
    assert code == 2
    assert "needs starlette and uvicorn: pip install 'deepcluster[explore]'" in said
    monkeypatch.undo()
    (own_run / "features.npy").write_bytes(b"damaged")
    code, said = complaint([str(own_run)], capsys)
    assert (code, "features.npy is damaged" in said) == (4, True)
    (own_run / "closing.json").unlink()
    code, said = complaint([str(own_run)], capsys)
    assert (code, "is not finished" in said) == (4, True)


def test_a_network_that_was_imported_has_no_groups(own_run: Path, capsys):
    closing = json.loads((own_run / "closing.json").read_text())
    closing["sha256"] = {"model.safetensors": closing["sha256"]["model.safetensors"]}
    closing["imported"] = {"file": "checkpoint.pth.tar", "sha256": ""}
    (own_run / "closing.json").write_text(json.dumps(closing))
    code, said = complaint([str(own_run)], capsys)
    assert (code, "its network was imported" in said) == (2, True)


def test_without_its_network_a_run_can_still_be_looked_at(own_run: Path):
    (own_run / "model.safetensors").unlink()
    with TestClient(opened(own_run), f"http://{HOST}/{SECRET}/", headers=OWN) as client:
        assert client.get("").status_code == 200
        reply = client.post("api/search", content=b"x")
        assert reply.status_code == 409
        assert "model.safetensors cannot be read" in reply.json()["error"]


def test_after_an_edit_only_groups_it_has_touched_get_new_middles(own_run: Path, monkeypatch):
    exploration = Exploration(RunFolder(own_run))
    asked: list[int] = []
    middles = KeptFeatures.middles

    def noted(self: KeptFeatures, labels: np.ndarray, groups: np.ndarray) -> object:
        asked.extend(groups.tolist())
        return middles(self, labels, groups)

    monkeypatch.setattr(KeptFeatures, "middles", noted)
    first, second, third, *_ = exploration.view.groups.tolist()
    _ = exploration.view.tree
    exploration.merge([first, second])
    exploration.move(exploration.view.members(third)[:2].tolist(), None)
    exploration.move(exploration.view.members(third).tolist(), first)
    asked.clear()
    tree, view = exploration.view.tree, exploration.view
    new = view.groups.tolist()[-1]
    assert {*asked} <= {first, second, third, new}
    anew, within = middles(exploration._features, view.record.labels, view.groups)
    np.testing.assert_allclose(view._leaves.middles, anew, rtol=1e-12, atol=1e-12)
    assert tree.within == pytest.approx(within, abs=1e-9)
    np.testing.assert_array_equal(tree.joined, MergeTree.of(anew, view.sizes).joined)


def test_threads_that_ask_at_once_wait_for_the_one_that_makes_it(own_run: Path, monkeypatch):
    shutil.rmtree(own_run / "thumbnails")
    made: list[str] = []

    def counted(name: str, make: Callable[..., object]) -> Callable[..., object]:
        def slowly(*given: object) -> object:
            made.append(name)
            time.sleep(0.05)
            return make(*given)

        return slowly

    monkeypatch.setattr(MergeTree, "of", counted("tree", MergeTree.of))
    monkeypatch.setattr(album, "Store", counted("store", album.Store))
    exploration, pictures = Exploration(RunFolder(own_run)), Pictures(RunFolder(own_run))
    with ThreadPoolExecutor(8) as threads:
        asked = [
            threads.submit(work)
            for work in [exploration.prepare, pictures.prepare, partial(pictures.small, 0)] * 3
        ]
    assert all(one.exception() is None for one in asked)
    assert sorted(made) == ["store", "tree"]


def test_what_is_known_is_not_found_out_again(own_run: Path):
    exploration = Exploration(RunFolder(own_run))
    before = exploration.view
    tree, groups = before.tree, {group.number: group for group in before.page.groups}
    exploration.name(0, "cats")
    assert exploration.view.tree is tree
    again = {group.number: group for group in exploration.view.page.groups}
    assert again[0].title == "Group 0: cats"
    assert again[1].members is groups[1].members
    exploration.move([int(groups[1].members[0])], 0)
    assert exploration.view.tree is not tree
    moved = {group.number: group for group in exploration.view.page.groups}
    assert moved[2].members is groups[2].members
    assert (moved[0].size, moved[1].size) == (groups[0].size + 1, groups[1].size - 1)
