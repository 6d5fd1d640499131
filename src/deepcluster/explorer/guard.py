"""Who may ask: this machine's own browser, by the address that was printed, from our own page.

- The Host must be this machine by one of its own names, or a page of another site whose name was
  made to lead here could read everything (DNS rebinding).
- The path must begin with the secret that was drawn when the site was started. It is in the path
  and not in a cookie, since cookies go to every port of a machine.
- What changes something must come from our own page, by Origin.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LONGEST_PATH = 1_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    b"content-security-policy": _POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
}


class Guard:
    """Stands before the site; what it lets through no longer has the secret in its path."""

    def __init__(self, app: App, port: int, secret: str) -> None:
        self._app = app
        self._secret = secret.encode()
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost", "[::1]")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse in one sentence, or pass on."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name.lower() for name, _ in message["headers"]}
                more = [(name, value) for name, value in _HEADERS.items() if name not in given]
                if b"cache-control" not in given:
                    more.append((b"cache-control", b"no-store"))
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _say(with_headers, *refusal)
            return
        _, _, rest = scope["path"].removeprefix("/").partition("/")
        if "/" not in scope["path"][1:]:  # links are relative to the slash at the end
            location = f"/{self._secret.decode()}/"
            await _say(with_headers, 308, "", [(b"location", location.encode())])
            return
        await self._app({**scope, "path": f"/{rest}", "root_path": ""}, receive, with_headers)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence where this request is not to be answered."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return 421, "This site answers on 127.0.0.1 only, at the address that was printed."
        first = scope["path"].removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(first.encode(errors="replace"), self._secret):
            return (
                403,
                "The address lacks its secret: use the one that deepcluster explore printed.",
            )
        if len(scope["path"]) > _LONGEST_PATH:
            return 414, "That address is too long."
        own = [f"http://{host.decode()}".encode() for host in hosts]
        origin = headers.get(b"origin")
        if scope["method"] not in ("GET", "HEAD"):
            if origin != own:
                return 403, "Only the page itself may change something."
        elif origin not in (None, own):
            return 403, "Only the page itself may read this."
        site = headers.get(b"sec-fetch-site", [b"none"])[0]
        visited = headers.get(b"sec-fetch-mode", [b""])[0] == b"navigate"
        if site not in (b"same-origin", b"none") and not (visited and scope["method"] == "GET"):
            return 403, "Only the page itself may read this."
        return None


async def _say(
    send: Send, status: int, sentence: str, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    content = f"{sentence}\n".encode()
    kind = (b"content-type", b"text/plain; charset=utf-8")
    length = (b"content-length", str(len(content)).encode())
    start = {"status": status, "headers": [kind, length, *(headers or [])]}
    await send({"type": "http.response.start", **start})
    await send({"type": "http.response.body", "body": content})
