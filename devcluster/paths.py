"""REST paths of the Kubernetes API. Pure."""

from __future__ import annotations


def path_for(api_version: str, plural: str, namespace: str | None = None, name: str | None = None) -> str:
    """Return the REST path of a collection, or of one object when a name is given.

    `api_version` as in manifests ("v1", "apps/v1"), `plural` the resource name; the caller appends a subresource.
    """
    root = f"/api/{api_version}" if "/" not in api_version else f"/apis/{api_version}"
    scope = f"/namespaces/{namespace}" if namespace else ""
    tail = f"/{name}" if name else ""
    return f"{root}{scope}/{plural}{tail}"
