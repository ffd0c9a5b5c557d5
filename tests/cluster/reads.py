"""Reading objects as kubectl names and shows them, without a process for each look: tests look many times a second.

What users do (apply, annotate, delete, wait) is done with the real kubectl; this only looks.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from devcluster.kube import access

Json = dict[str, Any]


class Reads:
    """Reads objects of one cluster by any name that kubectl knows their kind by; no connection stays open."""

    def __init__(self, kubeconfig: Path) -> None:
        self._server, tls, _ = access(kubeconfig)
        self._tls = tls if isinstance(tls, ssl.SSLContext) else None
        self._kinds: dict[str, tuple[str, str, bool]] = {}  # word → path of the version, plural, namespaced

    def knows(self, word: str) -> bool:
        """Whether the word names a kind; the cluster is asked again before the answer is no."""
        if word not in self._kinds:
            self._discover()
        return word in self._kinds

    def get(self, word: str, name: str, namespace: str) -> Json | None:
        """Read one object, None when it does not exist."""
        found = self._fetch(f"{self._collection(word, namespace)}/{quote(name)}")
        return None if found is None else _shown(found)

    def items(self, word: str, namespace: str, selector: str = "") -> list[Json]:
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
        for group in groups:  # the preferred version first: the first that has a kind is the one that is shown
            versions = [group["preferredVersion"], *group["versions"]]
            roots += dict.fromkeys(f"/apis/{version['groupVersion']}" for version in versions)
        for root in roots:
            for resource in (self._fetch(root) or {"resources": []})["resources"]:
                if "/" in resource["name"] or "list" not in resource["verbs"]:
                    continue
                words = (resource["name"], resource["singularName"], resource["kind"].lower())
                for word in (*words, *resource.get("shortNames", ())):
                    self._kinds.setdefault(word, (root, resource["name"], resource["namespaced"]))

    def _fetch(self, path: str) -> Json | None:
        request = urllib.request.Request(self._server + path, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
                found: Json = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                pytest.fail(f"GET {path}: {error.code} {error.read().decode(errors='replace')}")
        except OSError as error:
            pytest.fail(f"GET {path}: {error}")


def _shown(obj: Json) -> Json:
    """An object as `kubectl get -o json` prints it."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key != "managedFields"}}
