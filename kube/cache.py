"""The copy of one kind that an informer keeps: parsed, trimmed objects by key, with indexes kept as they change.

No I/O and no clock. Objects are shared, not copied: a reader must not change one. Large objects are kept as JSON and
parsed when they are read: as Python objects they would take up to sixty times as much memory.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping

import orjson

from api.view import JsonObject

Key = tuple[str, str]  # (namespace, name); the namespace of a cluster-scoped object is ""
IndexFunction = Callable[[JsonObject], Iterable[str]]
Trim = Callable[[JsonObject], JsonObject]

PACKED_BYTES = 16 * 1024  # from this size on an object is kept as JSON
MOST_UNPACKED = 8  # packed objects that were read last are kept parsed, too
OBJECT_FACTOR = 3  # memory of a small object that is kept parsed, in terms of its JSON (measured: 2 to 3)


def key_of(obj: JsonObject) -> Key:
    """Return (namespace, name) of an object."""
    metadata = obj["metadata"]
    return str(metadata.get("namespace") or ""), str(metadata["name"])


def version_of(obj: JsonObject) -> str:
    """Return an object's resource version, "" when it has none."""
    return str(obj["metadata"].get("resourceVersion") or "")


def is_newer(version: str, than: str) -> bool:
    """Return whether a resource version was made after another one of the same kind.

    Source: resource versions of one kind are comparable integers (Kubernetes 1.35 says so; every version since 1.31
    behaves so). A version that is not a number counts as newer, so that nothing gets lost.
    """
    if version.isdigit() and than.isdigit():
        return int(version) > int(than)
    return version != than


def drop_managed_fields(obj: JsonObject) -> JsonObject:
    """Take out what no one here reads and what makes up half of many objects; changes `obj` and returns it."""
    metadata = obj["metadata"]
    metadata.pop("managedFields", None)
    annotations = metadata.get("annotations")
    if annotations:
        annotations.pop("kubectl.kubernetes.io/last-applied-configuration", None)
    return obj


class Cache:
    """Objects of one kind by key, and the declared indexes: index name -> word -> keys.

    `weight`: the memory of all objects in bytes, estimated from their JSON.
    """

    def __init__(self, indexes: Mapping[str, IndexFunction] | None = None) -> None:
        self.weight = 0
        self._objects: dict[Key, JsonObject | bytes] = {}
        self._weights: dict[Key, int] = {}
        self._unpacked: OrderedDict[Key, JsonObject] = OrderedDict()
        self._functions = dict(indexes or {})
        # most words lead to one key, which is then stored without a set around it
        self._indexes: dict[str, dict[str, Key | set[Key]]] = {name: {} for name in self._functions}

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[Key]:
        return iter(self._objects)

    def get(self, namespace: str, name: str) -> JsonObject | None:
        """Return an object, or None. The namespace of a cluster-scoped object is ""."""
        found = self._objects.get((namespace, name))
        return self._parsed((namespace, name), found) if found.__class__ is bytes else found  # type: ignore[return-value]

    def items(self, namespace: str | None = None) -> Iterator[JsonObject]:
        """Yield all objects (of one namespace), in no order; large ones are parsed one by one."""
        for key in list(self._objects):
            if (namespace is None or key[0] == namespace) and (obj := self.get(*key)) is not None:
                yield obj

    def by_index(self, index: str, word: str) -> list[JsonObject]:
        """Return the objects that an index lists under a word, sorted by key. Raises: KeyError for an unknown index."""
        keys = self._indexes[index].get(word)
        if keys is None:
            return []
        found = (self.get(*key) for key in ((keys,) if isinstance(keys, tuple) else sorted(keys)))
        return [obj for obj in found if obj is not None]

    def weight_of(self, key: Key) -> int | None:
        """Return the weight of an object in bytes, None when it is not here."""
        return self._weights.get(key)

    def put(self, obj: JsonObject, written: bytes | None = None) -> bool:
        """Store an object; returns whether it is kept packed.

        Args: `written`: the object as JSON, from which it is read again when it is large; None: small.
        """
        key = key_of(obj)
        old = self.get(*key)
        words = {name: tuple(function(obj)) for name, function in self._functions.items()}
        size = 0 if written is None else len(written)
        packed = size >= PACKED_BYTES
        # a copy: the writer of JSON leaves the memory behind it allocated
        self._objects[key] = memoryview(written).tobytes() if packed and written is not None else obj
        self._unpacked.pop(key, None)
        self._weigh(key, size if packed else size * OBJECT_FACTOR)
        for name, after in words.items():
            before = () if old is None else tuple(self._functions[name](old))
            if before != after:
                self._leave(name, key, before)
                self._enter(name, key, after)
        return packed

    def remove(self, key: Key) -> None:
        """Take an object out, if it is here."""
        old = self.get(*key)
        self._take_out(key)
        if old is not None:
            for name, function in self._functions.items():
                self._leave(name, key, function(old))

    def purge(self, key: Key) -> None:
        """Take an object out without asking the index functions about it: a walk over all words."""
        self._take_out(key)
        for name, entries in self._indexes.items():
            for word in [
                word for word, keys in entries.items() if keys == key or (isinstance(keys, set) and key in keys)
            ]:
                self._leave(name, key, (word,))

    def packed(self) -> Iterator[tuple[Key, int]]:
        """Yield the keys of the objects that are kept packed, with their weights."""
        return ((key, self._weights[key]) for key, found in self._objects.items() if found.__class__ is bytes)

    def _take_out(self, key: Key) -> None:
        self._objects.pop(key, None)
        self._unpacked.pop(key, None)
        self._weigh(key, None)

    def _parsed(self, key: Key, written: bytes) -> JsonObject:
        found = self._unpacked.get(key)
        if found is None:
            found = self._unpacked[key] = orjson.loads(written)
            if len(self._unpacked) > MOST_UNPACKED:
                self._unpacked.popitem(last=False)
        return found

    def _weigh(self, key: Key, weight: int | None) -> None:
        self.weight += (weight or 0) - self._weights.pop(key, 0)
        if weight is not None:
            self._weights[key] = weight

    def _enter(self, name: str, key: Key, words: Iterable[str]) -> None:
        entries = self._indexes[name]
        for word in words:
            keys = entries.setdefault(word, key)
            if isinstance(keys, set):
                keys.add(key)
            elif keys != key:
                entries[word] = {keys, key}

    def _leave(self, name: str, key: Key, words: Iterable[str]) -> None:
        entries = self._indexes[name]
        for word in words:
            keys = entries.get(word)
            if isinstance(keys, set):
                keys.discard(key)
                if len(keys) == 1:
                    entries[word] = keys.pop()
            elif keys == key:
                del entries[word]
