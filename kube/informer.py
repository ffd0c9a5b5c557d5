"""The list-and-watch loop of one kind, and the cache that it keeps.

A stream per namespace (or one for all) lists in pages, then watches with bookmarks and resumes from the last resource
version. A version that is too old (410) leads to a new list, whose difference to the cache is delivered: deletions that
happened meanwhile too. Every change goes to the handlers as (old, new); an object that comes again unchanged does not.

One object never ends a list or a watch. What cannot be read as a whole is kept without the part at fault
(`kube.reading`); what cannot be taken in leaves the cache, so that no old state of it is served. `skipped` names both.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

from api import view, words
from api.kinds import Kind
from api.reasons import Reason
from api.view import JsonObject
from kube import metrics, reading, skipped
from kube.budget import CacheBudget
from kube.cache import PACKED_BYTES, Cache, IndexFunction, Key, Trim, drop_managed_fields, is_newer, key_of, version_of
from kube.client import DEFAULT_PAGE_LIMIT, Client
from kube.errors import ApiError, Gone, NotFound, TooManyRequests, Unreachable
from kube.sharing import Sharing
from kube.skipped import SkippedObjects
from kube.slices import Slices

log = logging.getLogger(__name__)

ChangeHandler = Callable[[JsonObject | None, JsonObject | None], None]
Pass = tuple[Kind, Key]
"""A pass of a controller: its own kind, and the key that the pass is over."""

_WORDS = re.compile(r"[^ (),=]+")  # of a label selector
FIRST_BACKOFF = 0.25  # seconds
LARGEST_BACKOFF = 30.0  # seconds
LARGEST_ABSENT_BACKOFF = 10.0  # seconds between looks for a kind that is not served: its CRD may be installed any time
WATCH_SECONDS = (240, 480)  # a watch is asked to end after a random time between these, to spread reconnects
MAX_GONE = 4096  # objects that we deleted ourselves whose late echoes are recognised
MAX_PAGED_LISTS = 3  # after this many expired continue tokens in a row the list is fetched in one piece


class Informer:
    """Keeps a cache of one kind. Reading it costs nothing and is a little old by nature.

    Args:
        namespaces: the ones to look at; None means all (and cluster-scoped kinds).
        trim: removes what is not read from a fresh object; managedFields and the last-applied annotation always go.
        indexes: name -> function from an object to the words under which it is found.
        budget: the memory that this cache shares with others.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind,
        *,
        namespaces: Iterable[str] | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        trim: Trim | None = None,
        indexes: Mapping[str, IndexFunction] | None = None,
        page_limit: int = DEFAULT_PAGE_LIMIT,
        first_backoff: float = FIRST_BACKOFF,
        budget: CacheBudget | None = None,
    ) -> None:
        self.kind = kind
        self.cache = Cache(indexes)
        self.skipped = SkippedObjects(kind)
        self.synced = asyncio.Event()  # set after the first complete list; a later trouble does not clear it
        self.changes = 0  # that were taken in so far
        self.settled = asyncio.Event()  # set when synced, or when the API server says that it does not serve the kind
        self._client = client
        self._trim = trim
        self._sharing = Sharing()
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._first_backoff = first_backoff
        self._page_limit = page_limit
        self._handlers: list[ChangeHandler] = []
        self.writer: Pass | None = None  # the pass whose write is being stored just now
        self._gone: OrderedDict[str, None] = OrderedDict()  # UIDs of what we deleted ourselves
        scopes = sorted(set(namespaces)) if namespaces is not None and kind.namespaced else [None]
        self._streams = [_Stream(self, client, scope) for scope in scopes]
        self._budget = budget or CacheBudget()
        self._place = self._budget.join(self.cache, self._leave_out)
        self._wants_again = False  # objects were left out for want of memory
        metrics.CACHE_AGE.labels(kind.plural).set_function(self.age)
        metrics.CACHE_BYTES.labels(kind.plural).set_function(lambda: float(self.cache.weight))

    # Reading

    def get(self, namespace: str, name: str) -> JsonObject | None:
        """Return a cached object, or None; "" is the namespace of cluster-scoped objects."""
        return self.cache.get(namespace, name)

    def by_index(self, index: str, word: str) -> list[JsonObject]:
        """Return the cached objects under a word of an index, sorted by key."""
        return self.cache.by_index(index, word)

    def items(self, namespace: str | None = None) -> Iterator[JsonObject]:
        """Yield all cached objects."""
        return self.cache.items(namespace)

    def selects(self, value: str) -> bool:
        """Return whether the label selector, if there is one, names this value of its label."""
        return self._label_selector is None or value in _WORDS.findall(self._label_selector)

    @property
    def listing(self) -> bool:
        """True while a full list is being taken in: changes reported now are not fresh edits."""
        return any(stream.listing for stream in self._streams)

    @property
    def problem(self) -> str | None:
        """Why the API server cannot be listed or watched just now, in words; None when all is well."""
        problems = (stream.problem for stream in self._streams)
        return next((problem for problem in problems if problem is not None), None)

    def age(self) -> float:
        """Return the seconds since the API server last said anything; infinity before the first answer."""
        now = time.monotonic()
        return max(now - stream.heard_at for stream in self._streams)

    # Change

    def add_handler(self, handler: ChangeHandler) -> None:
        """Call `handler(old, new)` on each change (None: was or is not there). It must be quick and not raise."""
        self._handlers.append(handler)

    def observe_write(self, obj: JsonObject, writer: Pass | None = None) -> None:
        """Take in what one of our own writes returned, ahead of the watch.

        So the next pass sees the write, and its echo on the watch, which has the same resource version, wakes no one.
        An answer that is older than what the stream has already shown is ignored: the object may be deleted since.
        Args: `writer`: the pass that made the write, where the write need not wake it.
        """
        namespace, _ = key_of(obj)
        version = version_of(obj)
        self.writer = writer
        try:
            for stream in self._streams:
                if stream.covers(namespace) and stream.version and is_newer(version, stream.version):
                    self.store(obj)
        finally:
            self.writer = None

    def observe_deletion(self, key: Key, uid: str, writer: Pass | None = None) -> None:
        """Take in that a deletion by this process succeeded, ahead of the watch.

        The watch's own event about it, and late events from before it, wake no one. An object with finalizers
        stays until they are done. Args: `writer`: as in `observe_write`.
        """
        old = self.cache.get(*key)
        if old is None or old["metadata"].get("uid") != uid or old["metadata"].get("finalizers"):
            return
        self._gone[uid] = None
        while len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
        self.writer = writer
        try:
            self.drop(key)
        finally:
            self.writer = None

    async def run(self) -> None:
        """List and watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for stream in self._streams:
                group.create_task(stream.run(), name=f"informer {self.kind.plural} {stream.namespace or ''}")

    def store(self, obj: JsonObject, *, rolled_back: bool = False) -> None:
        """Put an object into the cache, unless what is there is as new, and call the handlers.

        Args: `rolled_back`: the server's history went back (restored from a backup); a lower version is the truth.
        """
        key = key_of(obj)
        old = self.cache.get(*key)
        if old is None and not rolled_back and obj["metadata"].get("uid") in self._gone:
            return  # a late echo
        if old is not None and _same_uid(old, obj):
            version, known = version_of(obj), version_of(old)
            if version == known and not _may_return(old):
                return
            if version != known and not (rolled_back or is_newer(version, known)):
                return
        try:
            obj = self._take_in(key, obj)
        except Exception as error:
            self.skipped.note(key, version_of(obj), skipped.FAULT, f"{type(error).__name__}: {error}"[:200], error)
            self._forget(key)
            if old is not None:
                self._tell(key, old, None)
            return
        self._tell(key, old, obj)

    def _take_in(self, key: Key, obj: JsonObject) -> JsonObject:
        """Trim, weigh and share an object, put it into the cache and return it. Raises: whatever the parts raise."""
        obj = drop_managed_fields(obj)
        if self._trim is not None and view.left_out(obj) is None:
            obj = self._trim(obj)
        written = reading.written(obj)
        if written is None or len(written) > reading.LARGEST_PART:
            obj = reading.reduced(obj)
            written = reading.written(obj)
        if written is None or len(written) < PACKED_BYTES:
            self._sharing.share(obj)
        packed = self.cache.put(obj, written)
        self._note(key, obj)
        self._budget.grown(self._place, key, packed=packed)
        return obj

    def _note(self, key: Key, obj: JsonObject) -> None:
        left = view.left_out(obj)
        if left is None:
            self.skipped.forget(key)
        else:
            self.skipped.note(key, version_of(obj), str(left["reason"]), str(left["detail"]))

    def _leave_out(self, key: Key) -> None:
        """Keep of an object only its metadata: the caches use more memory than the budget allows."""
        old = self.cache.get(*key)
        if old is None:
            return
        detail = f"the caches use more than the setting cacheBudget allows, {words.size(self._budget.limit)}"
        obj = reading.without_parts(old, Reason.CACHE_BUDGET_EXCEEDED, detail)
        self.cache.put(obj, reading.written(obj))
        self._note(key, obj)
        self._wants_again = True
        self._tell(key, old, obj)

    def _forget(self, key: Key) -> None:
        """Take an object out of the cache, also where an index function fails about it."""
        try:
            self.cache.remove(key)
        except Exception:  # the fault was noted when the object was put in
            self.cache.purge(key)

    @property
    def wants_list(self) -> bool:
        """Whether objects were left out for want of memory, and there is room for them now."""
        return self._wants_again and self._budget.has_room

    def drop(self, key: Key, version: str = "") -> None:
        """Take an object out of the cache, unless a newer one is there, and call the handlers.

        Args: `version`: resource version of the deletion, "" when unknown.
        """
        old = self.cache.get(*key)
        if old is None:
            self.skipped.forget(key)
        if old is None or (version and is_newer(version_of(old), version)):
            return
        self.skipped.forget(key)
        self._forget(key)
        self._tell(key, old, None)

    def begin_list(self) -> None:
        """A list begins: all objects come once more."""
        self._wants_again = False
        self.skipped.nameless = 0

    def stream_synced(self) -> None:
        """A stream has completed a list, or learnt that the kind is not served."""
        metrics.CACHE_OBJECTS.labels(self.kind.plural).set(len(self.cache))
        if all(stream.listed_once for stream in self._streams):
            self.synced.set()
        if all(stream.listed_once or stream.absent for stream in self._streams):
            self.settled.set()

    def _tell(self, key: Key, old: JsonObject | None, new: JsonObject | None) -> None:
        self.changes += 1
        for handler in self._handlers:
            try:
                handler(old, new)
            except Exception as error:  # one object must not end the watch of all others
                version = version_of(new or old or {"metadata": {}})
                detail = f"{type(error).__name__}: {error}"[:200]
                self.skipped.note(key, version, skipped.HANDLER_FAULT, detail, error)


class _Stream:
    """List and watch over one namespace, or over all."""

    def __init__(self, informer: Informer, client: Client, namespace: str | None) -> None:
        self.namespace = namespace
        self.version = ""  # resource version up to which the cache has seen everything; "" before the first list
        self.listing = False
        self.listed_once = False
        self.absent = False  # the API server does not serve the kind
        self.heard_at = float("-inf")  # time.monotonic()
        self.problem: str | None = None
        self._informer = informer
        self._client = client
        self._failures = 0
        self._gone_lists = 0
        self._slices = Slices()
        self._newest = ""  # the largest version ever seen, also across lists
        self._objects = metrics.CACHE_OBJECTS.labels(informer.kind.plural)

    def covers(self, namespace: str) -> bool:
        """Return whether objects of a namespace come over this stream."""
        return self.namespace is None or self.namespace == namespace

    async def run(self) -> None:
        """List, watch, and begin again after each trouble, with a growing and jittered pause."""
        while True:
            try:
                if not self.version or self._informer.wants_list:
                    await self._list()
                await self._watch()
            except Gone as error:
                self.version = ""
                await self._pause(error, quick=True)
            except ApiError as error:
                if isinstance(error, NotFound) or "Too large resource version" in error.message:
                    self.version = ""  # the kind went away, or the server's history went back
                await self._pause(error)
            except (ValueError, KeyError, TypeError) as error:  # no JSON, or not the shape that was promised
                self.version = ""
                await self._pause(Unreachable(0, "BadAnswer", f"{type(error).__name__}: {error}"))

    async def _list(self) -> None:
        metrics.CACHE_RELISTS.labels(self._informer.kind.plural).inc()
        limit = self._informer._page_limit if self._gone_lists < MAX_PAGED_LISTS else 0
        seen: set[Key] = set()
        version, rolled_back = "", False
        self.listing = True
        self._informer.begin_list()
        try:
            pages = self._client.list_pages(
                self._informer.kind,
                self.namespace,
                label_selector=self._informer._label_selector,
                field_selector=self._informer._field_selector,
                limit=limit,
            )
            async for page in pages:
                self._heard()
                version = page.resource_version
                rolled_back = bool(self._newest) and is_newer(self._newest, version)
                self._informer.skipped.note_nameless(page.unreadable)
                for obj in page.items:
                    seen.add(key_of(obj))
                    self._informer.store(obj, rolled_back=rolled_back)
                    await self._slices.breathe()
                await asyncio.sleep(0)
            await self._drop_missing(seen, "" if rolled_back else version)
        except Gone:
            self._gone_lists += 1
            raise
        finally:
            self.listing = False
        self._gone_lists = 0
        self.version = self._newest = version
        self._succeeded()
        self.listed_once, self.absent = True, False
        self._informer.stream_synced()

    async def _drop_missing(self, seen: set[Key], version: str) -> None:
        """Drop what the list no longer has. What we wrote ourselves after the list was made is newer, and stays."""
        for key in [key for key in self._informer.cache if key not in seen and self.covers(key[0])]:
            self._informer.drop(key, version)
            await self._slices.breathe()

    async def _watch(self) -> None:
        events = self._client.watch(
            self._informer.kind,
            self.version,
            self.namespace,
            label_selector=self._informer._label_selector,
            field_selector=self._informer._field_selector,
            timeout_seconds=random.randint(*WATCH_SECONDS),  # noqa: S311 - spreads load, no secret
            opened=self._opened,
        )
        try:
            async for event in events:
                self._heard()
                self._failures = 0
                version = version_of(event.object)
                if event.type == "UNREADABLE":
                    self._informer.skipped.note_nameless()
                elif event.type == "DELETED":
                    self._informer.drop(key_of(event.object), version)
                elif event.type in ("ADDED", "MODIFIED"):
                    self._informer.store(event.object)
                if version:
                    self.version = self._newest = version
                self._objects.set(len(self._informer.cache))
                await self._slices.breathe()
        finally:
            await events.aclose()
        await asyncio.sleep(0.05)  # a server that ends each watch at once must not be asked without pause

    def _opened(self) -> None:
        """The server accepted a watch. Backoff starts again only when an event comes over it."""
        self._heard()
        self._clear_problem()

    def _heard(self) -> None:
        self.heard_at = time.monotonic()

    def _succeeded(self) -> None:
        self._failures = 0
        self._clear_problem()

    def _clear_problem(self) -> None:
        if self.problem is not None:
            log.info("list and watch work again", extra={"kind": self._informer.kind.kind, "ns": self.namespace})
        self.problem = None

    async def _pause(self, error: ApiError, *, quick: bool = False) -> None:
        kind = self._informer.kind
        metrics.CACHE_FAILURES.labels(kind.plural, type(error).__name__).inc()
        delay = min(LARGEST_BACKOFF, self._informer._first_backoff * 2 ** min(self._failures, 10))
        delay *= 0.5 + random.random()  # noqa: S311 - jitter, so that replicas do not come back together
        self._failures += 1
        if isinstance(error, TooManyRequests) and error.retry_after:
            delay = max(delay, error.retry_after)
        if quick and self._failures == 1:
            delay = min(delay, 0.1)
        problem = _describe(kind, error)
        if problem != self.problem and not (isinstance(error, Gone) or _is_cut(error, self._failures)):
            log.warning("list or watch failed", extra={"kind": kind.kind, "ns": self.namespace, "error": problem})
            self.problem = problem
        if isinstance(error, NotFound):
            delay = min(delay, LARGEST_ABSENT_BACKOFF)
            self.absent = not self.listed_once
            self._informer.stream_synced()
        await asyncio.sleep(delay)


def _is_cut(error: ApiError, failures: int) -> bool:
    """A watch that is cut once is everyday life, not a problem."""
    return error.reason == "WatchCut" and failures <= 1


def _describe(kind: Kind, error: ApiError) -> str:
    if isinstance(error, NotFound):
        return f"{kind.api_version} {kind.kind} is not served (is its CRD installed?)"
    return f"{type(error).__name__}: {error.message or error.reason}"


def _may_return(old: JsonObject) -> bool:
    """Whether the same version of an object is taken in once more: it was left out for want of memory."""
    left = view.left_out(old)
    return left is not None and left["reason"] == Reason.CACHE_BUDGET_EXCEEDED


def _same_uid(old: JsonObject, new: JsonObject) -> bool:
    return bool(old["metadata"].get("uid") == new["metadata"].get("uid"))
