"""Reads objects by kubectl's names, without a process per read: tests read many times a second.

Tests use the real kubectl for user actions (apply, annotate, delete, wait).
"""

from __future__ import annotations

import asyncio
import json
import weakref
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from api.view import JsonObject
from kube.auth import Credentials, load_credentials

_NOT_FOUND, _OK = 404, 200


class Reads:
    """Reads objects of one cluster by any name of their kind that kubectl accepts; thread-safe.

    Connections are kept: a handshake costs client and server more than all else of a look.
    """

    def __init__(self, kubeconfig: Path) -> None:
        credentials = _credentials(kubeconfig)
        self._address = urlsplit(credentials.server).netloc
        self._tls = credentials.tls
        self._idle: list[HTTPConnection] = []
        weakref.finalize(self, _close, self._idle)
        self._kinds: dict[str, tuple[str, str, bool]] = {}  # word → path of the version, plural, namespaced

    def knows(self, word: str) -> bool:
        """Whether the word names a kind; a negative answer is based on a new discovery."""
        if word not in self._kinds:
            self._discover()
        return word in self._kinds

    def get(self, word: str, name: str, namespace: str) -> JsonObject | None:
        """Read one object, None when it does not exist."""
        found = self._fetch(f"{self._collection(word, namespace)}/{quote(name)}")
        return None if found is None else _shown(found)

    def items(self, word: str, namespace: str, selector: str = "") -> list[JsonObject]:
        """Read a collection, by labels if a selector is given."""
        query = f"?labelSelector={quote(selector)}" if selector else ""
        found = self._fetch(self._collection(word, namespace) + query) or {"items": []}
        kind = {"apiVersion": found.get("apiVersion"), "kind": str(found.get("kind", "")).removesuffix("List")}
        return [_shown({**kind, **item}) for item in found["items"]]

    def _collection(self, word: str, namespace: str) -> str:
        root, plural, namespaced = self._kinds[word]
        return f"{root}/namespaces/{namespace}/{plural}" if namespaced else f"{root}/{plural}"

    def _discover(self) -> None:
        groups = (self._fetch("/apis") or {})["groups"]
        roots = ["/api/v1"]
        for group in groups:  # the preferred version first: the first one with the kind is used
            versions = [group["preferredVersion"], *group["versions"]]
            roots += dict.fromkeys(f"/apis/{version['groupVersion']}" for version in versions)
        for root in roots:
            for resource in (self._fetch(root) or {"resources": []})["resources"]:
                if "/" in resource["name"] or "list" not in resource["verbs"]:
                    continue
                words = (resource["name"], resource["singularName"], resource["kind"].lower())
                for word in (*words, *resource.get("shortNames", ())):
                    self._kinds.setdefault(word, (root, resource["name"], resource["namespaced"]))

    def _fetch(self, path: str) -> JsonObject | None:
        status, body = self._ask(path)
        if status == _NOT_FOUND:
            return None
        if status != _OK:
            pytest.fail(f"GET {path}: {status} {body.decode(errors='replace')}")
        found: JsonObject = json.loads(body)
        return found

    def _ask(self, path: str) -> tuple[int, bytes]:
        """Return status and body; a connection that was kept and turns out to be cut is replaced by another."""
        while True:
            try:
                connection, kept = self._idle.pop(), True
            except IndexError:
                connection, kept = self._connection(), False
            try:
                connection.request("GET", path, headers={"Accept": "application/json"})
                answer = connection.getresponse()
                said = answer.status, answer.read()
            except (OSError, HTTPException) as error:
                connection.close()
                if not kept:
                    pytest.fail(f"GET {path}: {error!r}")
            else:
                self._idle.append(connection)
                return said

    def _connection(self) -> HTTPConnection:
        if self._tls is None:
            return HTTPConnection(self._address, timeout=30)
        return HTTPSConnection(self._address, timeout=30, context=self._tls)


def _credentials(kubeconfig: Path) -> Credentials:
    """Read a kubeconfig, also where a loop runs already."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(lambda: asyncio.run(load_credentials(str(kubeconfig)))).result()


def _close(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def _shown(obj: JsonObject) -> JsonObject:
    """An object as `kubectl get -o json` prints it."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}
