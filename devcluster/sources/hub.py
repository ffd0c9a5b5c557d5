"""A hub stand-in: the part of the Hugging Face HTTP API that `huggingface_hub` uses to read models, from a folder.

`root/ORG/NAME/…` is served as revision `main`, `root/ORG/NAME@REV/…` as REV. Large files are redirected to a second
origin (the "CDN") with a signed link, as the real hub does, so that a client which sends its token there is found out.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, quote

from devcluster.sources.faults import Rule
from devcluster.sources.hubrepo import (
    Blob,
    Repositories,
    Settings,
    SettingsError,
    Snapshot,
    file_entry,
    folder_entry,
    model_info,
    tree_entries,
    url_path,
    wire_time,
)
from devcluster.sources.server import (
    Answer,
    Call,
    FilePart,
    RangeError,
    StandIn,
    common_arguments,
    common_options,
    in_thread,
    json_answer,
    parse_listen,
    parse_range,
    serve,
)

PAGE_ENTRIES: Final = 1000  # entries per page of the tree endpoint
LINK_SECONDS: Final = 3600  # life of a signed link
NOT_FOUND_PAGE: Final = "Sorry, we can't find the page you are looking for."
TOKEN_REFUSED: Final = "Invalid credentials in Authorization header"  # noqa: S105 - the words of an error
LOG_IN: Final = "Invalid username or password."


def error_answer(status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> Answer:
    """Return an error as the hub words it: headers for the client library, JSON for people."""
    extra = {"X-Error-Message": message, "X-Request-Id": f"Root=1-{os.urandom(12).hex()}", **(headers or {})}
    if code:
        extra["X-Error-Code"] = code
    answer = json_answer({"error": message}, status, extra)
    answer.code = code
    return answer


@dataclass(slots=True)
class _RefusedError(Exception):
    """Ends the handling of a request with this answer."""

    answer: Answer


@dataclass(slots=True)
class _Target:
    """What a request addresses, from its path alone."""

    org: str = ""
    name: str = ""
    revision: str = "main"
    path: str = ""


def parse_target(segments: Sequence[str]) -> tuple[str, _Target]:
    """Return (operation, target) for the decoded segments of a path on the hub's own origin."""
    match segments:
        case ["api", "whoami-v2"]:
            return "whoami", _Target()
        case ["api", "models"]:
            return "list_models", _Target()
        case ["api", "models", org, name]:
            return "model_info", _Target(org, name)
        case ["api", "models", org, name, "revision", revision]:
            return "model_info", _Target(org, name, revision)
        case ["api", "models", org, name, "tree", revision, *path]:
            return "tree", _Target(org, name, revision, "/".join(path).strip("/"))
        case ["api", "models", org, name, "paths-info", revision]:
            return "paths_info", _Target(org, name, revision)
        case ["api", "models", org, name, "commits", revision]:
            return "commits", _Target(org, name, revision)
        case ["api", "models", org, name, "refs"]:
            return "refs", _Target(org, name)
        case ["api", "models", org, name, "auth-check"]:
            return "auth_check", _Target(org, name)
        case ["api", "resolve-cache", "models", org, name, revision, *path] if path:
            return "resolve_cache", _Target(org, name, revision, "/".join(path))
        case ["api", ("models" | "datasets" | "spaces"), *_]:
            return "no_such_repo", _Target()
        case [org, name, "resolve", revision, *path] if path:
            return "resolve", _Target(org, name, revision, "/".join(path))
    return "unknown", _Target()


_METHODS: Final = {"paths_info": ("POST",)}  # all others: GET and HEAD


class HubServer(StandIn):
    """The hub. `token` is one valid token or several; `endpoint` is the base URL for `HfApi(endpoint=…)`."""

    name = "hub"

    def __init__(
        self, root: str | os.PathLike[str], *, token: str | Sequence[str], cdn_port: int = 0, **options: Any
    ) -> None:
        self.tokens = (token,) if isinstance(token, str) else tuple(token)
        if not self.tokens or not all(self.tokens):
            raise ValueError("the hub needs at least one token, and none may be empty")
        super().__init__(root, secret=self.tokens[0], **options)
        self.repositories = Repositories(self.root, self.digests)
        self._cdn_port = cdn_port
        self._link_key = os.urandom(32)

    @property
    def token(self) -> str:
        """The first valid token; it is the secret of the control endpoints too."""
        return self.tokens[0]

    def sites(self) -> dict[str, int]:
        """The hub and, on a port of its own, the CDN: another origin for every client."""
        return {"hub": self._port, "cdn": self._cdn_port}

    def route(self, call: Call) -> None:
        """Name the operation; `path` is the decoded path."""
        segments = call.segments
        call.path = "/" + "/".join(segments)
        call.operation = "cdn" if call.site == "cdn" else parse_target(segments)[0]

    async def answer(self, call: Call) -> Answer:
        """Answer one request; reading of the disk happens in a thread."""
        try:
            if call.site == "cdn":
                return await asyncio.to_thread(self._cdn, call)
            allowed = _METHODS.get(call.operation, ("GET", "HEAD"))
            if call.method not in allowed:
                return error_answer(405, "Method not allowed", headers={"Allow": ", ".join(allowed)})
            form = await self._form(call) if call.operation == "paths_info" else {}
            return await asyncio.to_thread(self._hub, call, form)
        except _RefusedError as refused:
            return refused.answer
        except SettingsError as error:
            return error_answer(500, f"the stand-in cannot read its settings: {error}")
        except OSError as error:
            return error_answer(500, f"the stand-in cannot read a file: {error}")

    def fault_answer(self, call: Call, rule: Rule) -> Answer:
        """Return an error as the hub (or its CDN) gives it."""
        status = rule.status or 500
        if call.site == "cdn":
            answer = _cdn_error(status, rule.code or _CDN_CODES.get(status, "InternalError"), rule.message)
        else:
            code, message = _FAULTS.get(
                status, ("", "Internal Error - We're working hard to fix this as soon as possible!")
            )
            answer = error_answer(status, rule.message or message, rule.code or code)
        if rule.retry_after is not None:
            answer.headers["Retry-After"] = str(rule.retry_after)
            if status == 429 and call.site == "hub":
                kind = "resolvers" if call.operation.startswith("resolve") else "api"
                answer.headers["RateLimit"] = f'"{kind}";r=0;t={rule.retry_after}'
                answer.headers["RateLimit-Policy"] = f'"fixed window";"{kind}";q=500;w=300'
        return answer

    # the hub's own origin

    def _hub(self, call: Call, form: dict[str, list[str]]) -> Answer:
        operation, target = parse_target(call.segments)
        token = self._bearer(call)
        if operation == "whoami":
            return self._whoami(token)
        if operation == "unknown":
            return error_answer(404, NOT_FOUND_PAGE)
        if operation == "list_models":
            return self._list_models(call, token)
        settings = self._admit(call, operation, target, token)
        if settings.moved_to:
            moved = url_path(settings.moved_to)
            location = call.raw_path.replace(f"/{url_path(f'{target.org}/{target.name}')}", f"/{moved}", 1)
            return Answer(307, {"Location": location + (f"?{call.raw_query}" if call.raw_query else "")})
        if operation == "auth_check":
            return json_answer({})
        if operation == "refs":
            return self._refs(target)
        snapshot = self.repositories.snapshot(target.org, target.name, target.revision)
        if snapshot is None:
            return error_answer(404, f"Invalid rev id: {target.revision}", "RevisionNotFound")
        match operation:
            case "model_info":
                with_metadata = call.query.get("blobs", "").lower() in ("1", "true")
                return json_answer(model_info(snapshot, settings, with_metadata))
            case "tree":
                return self._tree(call, snapshot, target.path)
            case "paths_info":
                return _paths_info(snapshot, form)
            case "commits":
                return _commits(snapshot)
            case "resolve":
                return self._resolve(call, snapshot, target.path)
            case _:
                return self._resolve_cache(call, snapshot, target.path)

    def _bearer(self, call: Call) -> str:
        """Return the token sent, empty if none; note whose it is."""
        header = call.header("Authorization")
        if not header:
            return ""
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            call.identity = "invalid"
            return "\0"  # equals no token
        token = token.strip()
        call.identity = f"token-{self.tokens.index(token) + 1}" if token in self.tokens else "invalid"
        return token

    def _whoami(self, token: str) -> Answer:
        if token not in self.tokens:
            return error_answer(401, LOG_IN if not token else TOKEN_REFUSED)
        name = f"user-{self.tokens.index(token) + 1}"
        access = {"displayName": name, "role": "read", "createdAt": "2026-01-01T00:00:00.000Z"}
        return json_answer(
            {
                "type": "user",
                "id": "0",
                "name": name,
                "fullname": name,
                "isPro": False,
                "orgs": [],
                "auth": {"type": "access_token", "accessToken": access},
            }
        )

    def _list_models(self, call: Call, token: str) -> Answer:
        if token and token not in self.tokens:
            return error_answer(401, TOKEN_REFUSED)
        author, search = call.query.get("author", ""), call.query.get("search", "").lower()
        shown = []
        for org, name in self.repositories.names():
            settings = self.repositories.settings(org, name)
            hidden = settings.private and not _allowed(settings, token, self.tokens)
            if hidden or (author and org != author) or search not in f"{org}/{name}".lower():
                continue
            snapshot = self.repositories.snapshot(org, name, "main")
            if snapshot is not None:
                shown.append({k: v for k, v in model_info(snapshot, settings, False).items() if k != "siblings"})
        limit = call.query.get("limit", "")
        return json_answer(shown[: int(limit)] if limit.isdigit() else shown)

    def _admit(self, call: Call, operation: str, target: _Target, token: str) -> Settings:
        """Return the repository's settings if the caller may do this.

        Raises: _RefusedError with the status and code that the hub uses: a private repository looks as if it was not
        there, a gated one shows its metadata but not its files, and an unknown token is refused everywhere.
        """
        org, name = target.org, target.name
        exists = operation != "no_such_repo" and bool(self.repositories.folders(org, name))
        settings = self.repositories.settings(org, name) if exists else Settings()
        known = token in self.tokens or token in (settings.allowed_tokens or ())
        if known and call.identity == "invalid":
            call.identity = "token-repo"
        files = operation in ("resolve", "resolve_cache", "auth_check")
        gated = settings.gated and files and not settings.private
        restricted = f"Access to model {org}/{name} is restricted"
        if gated and not known:  # here an unknown token has the same answer as none
            raise _RefusedError(
                error_answer(
                    401,
                    f"{restricted}. You must have access to it and be authenticated to access it. Please log in.",
                    "GatedRepo",
                )
            )
        if token and not known:
            raise _RefusedError(error_answer(401, TOKEN_REFUSED))
        allowed = _allowed(settings, token, self.tokens)
        if not exists or (settings.private and not allowed):
            if not token:
                raise _RefusedError(error_answer(401, LOG_IN, "RepoNotFound"))
            raise _RefusedError(error_answer(404, "Repository not found", "RepoNotFound"))
        if settings.disabled:
            raise _RefusedError(error_answer(403, "Access to this resource is disabled."))
        if gated and not allowed:
            hint = f"and you are not in the authorized list. Visit {self.endpoint}/{org}/{name} to ask for access."
            raise _RefusedError(error_answer(403, f"{restricted} {hint}", "GatedRepo"))
        return settings

    def _refs(self, target: _Target) -> Answer:
        branches = []
        for revision in self.repositories.folders(target.org, target.name):
            snapshot = self.repositories.snapshot(target.org, target.name, revision)
            if snapshot is not None:
                branches.append({"name": revision, "ref": f"refs/heads/{revision}", "targetCommit": snapshot.sha})
        return json_answer({"branches": branches, "converts": [], "tags": [], "pullRequests": []})

    def _tree(self, call: Call, snapshot: Snapshot, folder: str) -> Answer:
        asked = {name: call.query.get(name, "").lower() in ("1", "true") for name in ("recursive", "expand")}
        entries = tree_entries(snapshot, folder, asked["recursive"], asked["expand"])
        if entries is None:
            return error_answer(404, f'{folder} does not exist on "{snapshot.sha}"', "EntryNotFound")
        start, page = _cursor_start(call.query.get("cursor", "")), 50 if asked["expand"] else PAGE_ENTRIES
        headers = {"X-Repo-Commit": snapshot.sha}
        if start + page < len(entries):
            cursor = base64.urlsafe_b64encode(b"%d" % (start + page)).decode()
            query = "&".join(f"{name}={str(value).lower()}" for name, value in asked.items())
            base = f"{self.scheme}://{call.header('Host')}{call.raw_path}"
            headers["Link"] = f'<{base}?{query}&cursor={quote(cursor)}>; rel="next"'
        return json_answer(entries[start : start + page], headers=headers)

    async def _form(self, call: Call) -> dict[str, list[str]]:
        try:
            body = await call.body()
            if "json" in call.header("Content-Type"):
                raw = json.loads(body)
                paths = raw["paths"]
                return {"paths": [paths] if isinstance(paths, str) else list(paths), "expand": [str(raw.get("expand"))]}
            return parse_qs(body.decode(), keep_blank_values=True)
        except (ValueError, KeyError, TypeError) as error:
            raise _RefusedError(error_answer(400, f"cannot read the body: {error}")) from error

    def _resolve(self, call: Call, snapshot: Snapshot, path: str) -> Answer:
        blob = self._blob(snapshot, path)
        headers = {
            "X-Repo-Commit": snapshot.sha,
            "X-Linked-Size": str(blob.file.size),
            "X-Linked-ETag": f'"{blob.etag}"',
            "Accept-Ranges": "bytes",
            "Vary": "Origin, Accept",
        }
        if blob.lfs:
            headers["Location"] = self._link(call, blob)
            return _redirect(302, headers)
        headers["Location"] = (
            f"/api/resolve-cache/models/{snapshot.repo_id}/{snapshot.sha}/{url_path(path)}?{url_path(call.path)}="
        )
        return _redirect(307, headers)

    def _resolve_cache(self, call: Call, snapshot: Snapshot, path: str) -> Answer:
        blob = self._blob(snapshot, path)
        if blob.lfs:
            return error_answer(404, NOT_FOUND_PAGE)
        headers = {"X-Repo-Commit": snapshot.sha, "Content-Type": "text/plain; charset=utf-8"}
        return _file_answer(call, blob, f'"{blob.oid}"', headers)

    def _blob(self, snapshot: Snapshot, path: str) -> Blob:
        blob = snapshot.blobs.get(path)
        commit = {"X-Repo-Commit": snapshot.sha}
        if blob is None:
            raise _RefusedError(error_answer(404, "Entry not found", "EntryNotFound", commit))
        if not self.repositories.still_there(blob):
            message = (
                f"Invalid rev id: {snapshot.sha} (its files have changed on the disk; the stand-in keeps no history)"
            )
            raise _RefusedError(error_answer(404, message, "RevisionNotFound"))
        return blob

    # the CDN

    def _link(self, call: Call, blob: Blob) -> str:
        """Return a link to the content on the other origin, signed and valid for an hour."""
        org, folder, *names = blob.real
        path = f"/{url_path(f'{org}/{folder}')}/{blob.sha256}/{url_path('/'.join(names))}"
        expires = int(time.time()) + LINK_SECONDS
        host = call.header("Host").rpartition(":")[0] or call.header("Host") or self._host
        shown = quote(f'inline; filename="{names[-1]}"', safe="")
        signature = self._signature(path, str(expires))
        query = f"response-content-disposition={shown}&Expires={expires}&Signature={signature}"
        return f"{self.scheme}://{host}:{self.ports['cdn']}{path}?{query}"

    def _signature(self, raw_path: str, expires: str) -> str:
        return hmac.new(self._link_key, f"{raw_path} {expires}".encode(), hashlib.sha256).hexdigest()

    def _cdn(self, call: Call) -> Answer:
        if call.method not in ("GET", "HEAD"):
            return _cdn_error(405, "MethodNotAllowed")
        if call.header("Authorization"):
            call.identity = "leaked-token"
            return _cdn_error(400, "InvalidArgument", "Only one auth mechanism allowed: a token must not leave the hub")
        expires = call.query.get("Expires", "")
        signature = self._signature(call.raw_path, expires)
        if not hmac.compare_digest(signature.encode(), call.query.get("Signature", "").encode()):
            return _cdn_error(403, "AccessDenied", "the link's signature does not match")
        call.identity = "signed-link"
        if int(expires) < time.time():
            return _cdn_error(403, "AccessDenied", "Request has expired")
        org, folder, oid, *names = call.segments
        file = self.root.file([org, folder, *names])
        if file is None or self.digests.of(file, "sha256")[0].hex() != oid:
            return _cdn_error(404, "NoSuchKey", "the content has changed since the link was made")
        blob = Blob("/".join(names), (org, folder, *names), file, "", oid, 0)
        etag = hashlib.md5(
            oid.encode(), usedforsecurity=False
        ).hexdigest()  # as on the real hub: not the digest of the content
        disposition = {"Content-Disposition": call.query.get("response-content-disposition", "inline")}
        return _file_answer(call, blob, f'"{etag}"', disposition)


def _allowed(settings: Settings, token: str, tokens: Sequence[str]) -> bool:
    """Whether a token opens a private or gated repository."""
    return token in (tokens if settings.allowed_tokens is None else settings.allowed_tokens)


def _cursor_start(cursor: str) -> int:
    """Return the index that a page starts at; a cursor that we did not make starts at the beginning."""
    try:
        return max(0, int(base64.urlsafe_b64decode(cursor or "MA==")))
    except ValueError:
        return 0


def _redirect(status: int, headers: dict[str, str]) -> Answer:
    body = f"Redirecting to {headers['Location']}".encode()
    return Answer(status, {"Content-Type": "text/plain; charset=utf-8", **headers}, body)


def _paths_info(snapshot: Snapshot, form: dict[str, list[str]]) -> Answer:
    """Answer for the paths that exist; others are left out, as the hub does."""
    expand = form.get("expand", [""])[0].lower() in ("1", "true")
    found = []
    for asked in form.get("paths", []):
        path = asked.strip("/")
        if path in snapshot.blobs:
            found.append(file_entry(snapshot, snapshot.blobs[path], expand))
        elif path and path in snapshot.trees:
            found.append(folder_entry(snapshot, path, expand))
    return json_answer(found)


def _commits(snapshot: Snapshot) -> Answer:
    commit = {
        "id": snapshot.sha,
        "title": "Files as found on the disk",
        "message": "",
        "authors": [{"user": snapshot.org}],
        "date": wire_time(snapshot.modified),
    }
    return json_answer([commit])


def _file_answer(call: Call, blob: Blob, etag: str, headers: dict[str, str]) -> Answer:
    """Answer GET and HEAD of a file: validators, If-Range, single ranges."""
    size = blob.file.size
    headers = {"Content-Type": "application/octet-stream", "ETag": etag, "Accept-Ranges": "bytes", **headers}
    if etag in [tag.strip().removeprefix("W/") for tag in call.header("If-None-Match").split(",")]:
        return Answer(304, headers)
    wanted = call.header("Range")
    if call.header("If-Range") not in ("", etag):
        wanted = ""
    try:
        span = parse_range(wanted, size) if wanted else None
    except RangeError:
        return Answer(416, {"Content-Range": f"bytes */{size}", "Content-Type": "text/plain"}, b"Range not satisfiable")
    if span is None:
        return Answer(200, headers, part=FilePart(blob.file, 0, size))
    start, count = span
    headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{size}"
    return Answer(206, headers, part=FilePart(blob.file, start, count))


_FAULTS: Final = {  # status -> (X-Error-Code, message), as the hub answers
    400: ("", "Bad request"),
    401: ("", TOKEN_REFUSED),
    403: ("", "Forbidden: pass a token with the required permissions"),
    404: ("RepoNotFound", "Repository not found"),
    408: ("", "Request timeout"),
    429: ("", "We had to rate limit you"),
    503: ("", "Service unavailable"),
    504: ("", "Gateway timeout"),
}
_CDN_CODES: Final = {403: "AccessDenied", 404: "NoSuchKey", 429: "SlowDown", 503: "SlowDown"}


def _cdn_error(status: int, code: str, message: str = "") -> Answer:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return Answer(status, {"Content-Type": "application/xml"}, body.encode(), code=code)


@contextlib.contextmanager
def running_hub(root: str | os.PathLike[str], *, token: str | Sequence[str], **options: Any) -> Iterator[HubServer]:
    """Run a hub in a thread for synchronous code; yields the server (endpoint, set_faults, requests)."""
    with in_thread(lambda: HubServer(root, token=token, **options)) as hub:
        yield hub


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM; prints one JSON line with `endpoint`, `cdn` and `pid` when ready."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.sources.hub", description=__doc__)
    common_arguments(parser)
    parser.add_argument("--token", action="append", help="a valid token; may be repeated; default: $HUB_TOKEN")
    parser.add_argument(
        "--cdn-listen", type=parse_listen, default=("", 0), metavar="HOST:PORT", help="port for large files"
    )
    flags = parser.parse_args(arguments)
    tokens = flags.token or [t for t in [os.environ.get("HUB_TOKEN", "")] if t]
    if not tokens:
        parser.error("a token is needed: --token or $HUB_TOKEN")
    if flags.cdn_listen[0] not in ("", flags.listen[0]):
        parser.error("--cdn-listen must have the host of --listen: links carry the host that the client used")
    hub = HubServer(flags.root, token=tokens, cdn_port=flags.cdn_listen[1], **common_options(flags))
    asyncio.run(serve(hub, flags.ready_fd, lambda: {"cdn": hub.url_of("cdn")}))


if __name__ == "__main__":
    main()
