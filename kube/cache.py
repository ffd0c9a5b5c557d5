"""The copy of one kind that an informer keeps: parsed, trimmed objects by key, with indexes kept as they change.

No I/O and no clock. Objects are shared, not copied: a reader must not change one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from api.view import JsonObject

Key = tuple[str, str]  # (namespace, name); the namespace of a cluster-scoped object is ""
IndexFunction = Callable[[JsonObject], Iterable[str]]
Trim = Callable[[JsonObject], JsonObject]


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
    """Objects of one kind by key, and the declared indexes: index name -> word -> keys."""

    def __init__(self, indexes: Mapping[str, IndexFunction] | None = None) -> None:
        self._objects: dict[Key, JsonObject] = {}
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
        return self._objects.get((namespace, name))

    def items(self, namespace: str | None = None) -> list[JsonObject]:
        """Return all objects (of one namespace), in no order."""
        if namespace is None:
            return list(self._objects.values())
        return [obj for key, obj in self._objects.items() if key[0] == namespace]

    def by_index(self, index: str, word: str) -> list[JsonObject]:
        """Return the objects that an index lists under a word, sorted by key. Raises: KeyError for an unknown index."""
        keys = self._indexes[index].get(word)
        if keys is None:
            return []
        return [self._objects[keys]] if isinstance(keys, tuple) else [self._objects[key] for key in sorted(keys)]

    def put(self, obj: JsonObject) -> JsonObject | None:
        """Store an object and return the one it replaces."""
        key = key_of(obj)
        old = self._objects.get(key)
        self._objects[key] = obj
        for name, function in self._functions.items():
            before = () if old is None else tuple(function(old))
            after = tuple(function(obj))
            if before != after:
                self._leave(name, key, before)
                self._enter(name, key, after)
        return old

    def remove(self, key: Key) -> JsonObject | None:
        """Take an object out and return it."""
        old = self._objects.pop(key, None)
        if old is not None:
            for name, function in self._functions.items():
                self._leave(name, key, function(old))
        return old

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
