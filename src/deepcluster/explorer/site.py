"""The site: which address gives what. Images have numbers here, never paths."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Any, TypeVar

import anyio
import numpy as np
from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from deepcluster.explorer.exploration import PAGE, Exploration, View, last_edit
from deepcluster.explorer.guard import App, Guard
from deepcluster.explorer.pictures import Pictures, grey_tile
from deepcluster.explorer.query import Query
from deepcluster.report.page import DATA, FILES, file_of_the_page
from deepcluster.runtime.errors import DataError, DeepClusterError, UsageError

LARGEST_UPLOAD = 20 * 2**20
_LARGEST_WORDS = 2**20  # bytes of JSON
_LONGEST_PART = 200
_MATCHES = 100  # names that are listed, as many as on a page from disk
_PATIENCE = 30  # seconds for a body to arrive
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_OWN_FILES = ("explore.js", "explore.css", "icon.svg")

Result = TypeVar("Result")


class Site:
    """The answers. What takes long is done by threads, a few at a time."""

    def __init__(self, exploration: Exploration, pictures: Pictures, query: Query) -> None:
        self.exploration, self.pictures, self.query = exploration, pictures, query
        self._heavy = CapacityLimiter(1)
        self._uploads = CapacityLimiter(1)
        self._searching = CapacityLimiter(2)
        self._drawing = CapacityLimiter(4)

    @property
    def view(self) -> View:
        """The run as it is arranged now."""
        return self.exploration.view

    async def index(self, request: Request) -> Response:
        """The page of the report, with what a site adds."""
        view = self.view
        return HTMLResponse(
            await self._thread(self._heavy, lambda: view.page.index("explored_run.html"))
        )

    async def group(self, request: Request) -> Response:
        """The page of one group."""
        view, group = self.view, _group(self.view, request)
        return HTMLResponse(await self._thread(self._heavy, lambda: view.group_page(group)))

    async def file(self, request: Request) -> Response:
        """A script, a style or the icon."""
        name = request.path_params["name"]
        if name in FILES:
            content = file_of_the_page(name)
        elif name in _OWN_FILES:
            content = (resources.files("deepcluster.explorer") / "templates" / name).read_bytes()
        else:
            raise HTTPException(404, "There is nothing here.")
        return Response(content, media_type=_TYPES[name.rpartition(".")[2]])

    async def data(self, request: Request) -> Response:
        """What the scripts of the report read."""
        view, name = self.view, request.path_params["name"]
        if name not in DATA:
            raise HTTPException(404, "There is nothing here.")
        text = await self._thread(self._heavy, lambda: view.page.data(name))
        return Response(text, media_type="text/javascript")

    async def filters(self, request: Request) -> Response:
        """The picture of the first layer's filters."""
        try:
            path = self.exploration.folder.path / "figures" / "filters.png"
            return Response(path.read_bytes(), media_type="image/png")
        except OSError:
            raise HTTPException(404, "There is nothing here.") from None

    async def thumbnail(self, request: Request) -> Response:
        """A small picture of an image."""
        return await self._picture(request, self.pictures.small)

    async def picture(self, request: Request) -> Response:
        """A larger one."""
        return await self._picture(request, self.pictures.large)

    async def _picture(self, request: Request, make: Callable[[int], bytes | None]) -> Response:
        image = self._image(request)
        content = await self._thread(self._drawing, lambda: make(image))
        headers = {"cache-control": "private, max-age=600"}
        if content is None:
            tile = grey_tile(self.view.record.names[image])
            return Response(tile, media_type="image/svg+xml")
        return Response(content, media_type="image/jpeg", headers=headers)

    async def members(self, request: Request) -> Response:
        """Some images of a group, from its centre outwards."""
        view, group = self.view, _group(self.view, request)
        members, start = view.members(group), _whole(request, "start", 0)
        some = members[start : start + PAGE].tolist()
        images = [{"image": number, "name": view.record.names[number]} for number in some]
        return JSONResponse({"images": images, "start": start, "size": len(members)})

    async def image(self, request: Request) -> Response:
        """An image and those most like it."""
        view, image = self.view, self._image(request)
        near = await self._thread(self._searching, lambda: view.neighbours(image))
        distance = float(view.record.distances[image])
        about = {"distance": round(distance, 4) if np.isfinite(distance) else None}
        return JSONResponse(view.image(image) | about | {"neighbours": view.told(near)})

    async def names(self, request: Request) -> Response:
        """The images whose file names have some letters in them, and their groups."""
        view, part = self.view, request.query_params.get("part", "")
        if not 0 < len(part) <= _LONGEST_PART:
            raise UsageError(f"part must be some of a file's name, {_LONGEST_PART} letters at most")
        found = await self._thread(self._searching, lambda: self.exploration.named(part))
        lines = [(view.record.names[n], int(view.record.labels[n])) for n in found[:_MATCHES]]
        groups = np.unique(view.record.labels[found])
        return JSONResponse({"count": len(found), "groups": groups.tolist(), "lines": lines})

    async def search(self, request: Request) -> Response:
        """The group of a picture that is sent, and the images most like it."""
        content = await _body(request, LARGEST_UPLOAD)
        view = self.view

        def find() -> dict[str, Any]:
            answer = self.query.answer(content)
            near = view.near(answer.row)
            return {
                "group": answer.group,
                "title": view.title(answer.group),
                "there": bool(np.isin(answer.group, view.groups)),
                "distance": round(answer.distance, 4),
                "margin": None if answer.margin is None else round(answer.margin, 4),
                "centred": answer.centred,
                "none": answer.none,
                "neighbours": view.told(near),
            }

        return JSONResponse(await self._thread(self._uploads, find))

    async def tree(self, request: Request) -> Response:
        """The upper part of the merge tree."""
        view = self.view
        return JSONResponse(await self._thread(self._heavy, view.crown))

    async def cut(self, request: Request) -> Response:
        """What fewer groups look like."""
        view, start = self.view, _whole(request, "start", 0)
        count = self._count(request, view)
        return JSONResponse(await self._thread(self._heavy, lambda: view.cut(count, start)))

    async def groups(self, request: Request) -> Response:
        """The groups that there are, for lists to choose from."""
        view = self.view
        pairs = zip(view.groups.tolist(), view.sizes.tolist(), strict=True)
        told = [{"group": group, "title": view.title(group), "size": size} for group, size in pairs]
        return JSONResponse({"groups": told, **_edits(view)})

    async def name(self, request: Request) -> Response:
        """Name a group."""
        match await _words(request):
            case {"group": int(group), "name": str(name)}:
                return await self._edited(lambda: self.exploration.name(group, name), group)
        raise UsageError("which group, and what is it called?")

    async def move(self, request: Request) -> Response:
        """Move images to another group, or to a new one."""
        match await _words(request):
            case {"images": list(images), "group": int() | None as group} if _all_whole(images):
                return await self._edited(lambda: self.exploration.move(images, group))
        raise UsageError("which images, and to which group?")

    async def merge(self, request: Request) -> Response:
        """Make several groups one."""
        match await _words(request):
            case {"groups": list(groups)} if _all_whole(groups):
                return await self._edited(lambda: self.exploration.merge(groups))
        raise UsageError("which groups are to be one?")

    async def undo(self, request: Request) -> Response:
        """Take back the last edit."""
        await _body(request, _LARGEST_WORDS)
        return await self._edited(self.exploration.undo)

    async def _edited(self, edit: Callable[[], int | None], group: int | None = None) -> Response:
        changed = await self._thread(self._heavy, edit)
        group = changed if changed is not None else group
        view = self.view
        about = {} if group is None else {"group": group, "title": view.title(group)}
        return JSONResponse({**about, **_edits(view)})

    async def export(self, request: Request) -> Response:
        """All images, or those of one group, as CSV; with their group in a cut of the tree."""
        view, cut = self.view, None
        images = np.arange(len(view.record.names))
        if "group" in request.query_params:
            images = view.members(_whole(request, "group"))
        if "count" in request.query_params:
            cut = self._count(request, view)
            await self._thread(self._heavy, lambda: view.tree)
        return _table(view, images, cut)

    async def export_selection(self, request: Request) -> Response:
        """The images that are named, as CSV."""
        match await _words(request):
            case {"images": list(images)} if _all_whole(images):
                view = self.view
                known = [image for image in images if image < len(view.record.names)]
                if known == images:
                    return _table(view, np.array(images, dtype=np.int64), None)
        raise UsageError("which images?")

    def _image(self, request: Request) -> int:
        image: int = request.path_params["number"]
        if image >= len(self.view.record.names):
            raise HTTPException(404, "There is no such image.")
        return image

    def _count(self, request: Request, view: View) -> int:
        count = _whole(request, "count")
        if not 1 <= count <= len(view.groups):
            raise UsageError(f"there are {len(view.groups)} groups, and at least 1 must be left")
        return count

    async def _thread(self, limiter: CapacityLimiter, work: Callable[[], Result]) -> Result:
        return await to_thread.run_sync(work, limiter=limiter)


def site_of(
    exploration: Exploration,
    pictures: Pictures,
    query: Query,
    port: int,
    secret: str,
    complain: Callable[[str], None] = lambda sentence: None,
) -> App:
    """The guarded site as an ASGI application.

    Args:
        exploration: The run.
        pictures: Pictures of its images.
        query: What looks at pictures from outside; closed with the site.
        port: On which it is served, to know a Host by.
        secret: What the path must begin with.
        complain: Told of what should not happen.
    """

    @asynccontextmanager
    async def open_while_served(app: Starlette) -> AsyncIterator[None]:
        yield
        query.close()

    async def refused(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", None)
        if status is None:
            status = 400 if isinstance(error, UsageError | DataError) else 409
        sentence = getattr(error, "detail", None) or str(error)
        return JSONResponse({"error": sentence}, status)

    async def failed(request: Request, error: Exception) -> Response:
        complain(f"unexpected {type(error).__name__}: {error}")
        return JSONResponse({"error": "Something went wrong; see the terminal."}, 500)

    site = Site(exploration, pictures, query)
    get = ["GET"]
    post = ["POST"]
    routes = [
        Route("/", site.index, methods=get),
        Route("/index.html", site.index, methods=get),
        Route("/groups/{number:int}.html", site.group, methods=get),
        Route("/thumbnails/{number:int}.jpg", site.thumbnail, methods=get),
        Route("/pictures/{number:int}.jpg", site.picture, methods=get),
        Route("/figures/filters.png", site.filters, methods=get),
        Route("/data/{name}.js", site.data, methods=get),
        Route("/api/groups", site.groups, methods=get),
        Route("/api/groups/{number:int}", site.members, methods=get),
        Route("/api/images/{number:int}", site.image, methods=get),
        Route("/api/names", site.names, methods=get),
        Route("/api/tree", site.tree, methods=get),
        Route("/api/cut", site.cut, methods=get),
        Route("/api/search", site.search, methods=post),
        Route("/api/name", site.name, methods=post),
        Route("/api/move", site.move, methods=post),
        Route("/api/merge", site.merge, methods=post),
        Route("/api/undo", site.undo, methods=post),
        Route("/export.csv", site.export, methods=get),
        Route("/export.csv", site.export_selection, methods=post),
        Route("/{name}", site.file, methods=get),
    ]
    handlers: dict[Any, Any] = {
        HTTPException: refused,
        DeepClusterError: refused,
        Exception: failed,
    }
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=open_while_served)
    app.router.redirect_slashes = False
    return Guard(app, port, secret)


def _edits(view: View) -> dict[str, Any]:
    return {"edits": len(view.edits.steps), "last": last_edit(view.edits)}


def _table(view: View, images: Any, cut: int | None) -> Response:
    headers = {"content-disposition": 'attachment; filename="groups.csv"'}
    return StreamingResponse(
        view.table(images, cut), media_type="text/csv; charset=utf-8", headers=headers
    )


def _group(view: View, request: Request) -> int:
    group: int = request.path_params["number"]
    if group > view.groups[-1] or not len(view.members(group)):
        raise HTTPException(404, "There is no such group.")
    return group


def _whole(request: Request, name: str, default: int | None = None) -> int:
    """A number of the query."""
    text = request.query_params.get(name)
    if text is None and default is not None:
        return default
    if text is None or not (text.isascii() and text.isdecimal() and len(text) <= 12):
        raise UsageError(f"{name} must be a whole number")
    return int(text)


def _all_whole(numbers: list[Any]) -> bool:
    return all(type(number) is int and number >= 0 for number in numbers)


async def _words(request: Request) -> Any:
    """The JSON of a request."""
    try:
        return json.loads(await _body(request, _LARGEST_WORDS))
    except (ValueError, RecursionError):
        raise UsageError("that is no JSON") from None


async def _body(request: Request, most: int) -> bytes:
    """The body of a request, refused as soon as it is known to be too long."""
    too_large = HTTPException(413, f"That is larger than {most // 2**20} MB.")
    length = request.headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()) or int(length[:20]) > most:
        raise too_large
    content = bytearray()
    try:
        with anyio.fail_after(_PATIENCE):
            async for part in request.stream():
                content += part
                if len(content) > most:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, f"Nothing came for {_PATIENCE} seconds.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The sender has gone.") from None
    return bytes(content)
