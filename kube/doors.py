"""The private doors: everything here depends on the inside of kubernetes-asyncio or aiohttp, not on what they promise.

A new release of either may change these places without notice. `tests/unit/kube/test_engine_doors.py` fails when one
of them no longer behaves as this file needs, so that an upgrade shows it and not a cluster.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
import threading
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiohttp.payload import BytesPayload

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

_PACKAGE = "kubernetes_asyncio"
_import_lock = threading.Lock()
_loaded: tuple[type[Any], types.ModuleType] | None = None


def load_library() -> tuple[type[Any], types.ModuleType]:
    """Return kubernetes-asyncio's `Configuration` class and its `config` module, without its generated models.

    Importing the package as its `__init__` does brings some 800 model classes that nothing here uses (measured: 36 MB
    of memory and a quarter of a second in every process). Placeholders stand for the package while its two modules
    load, and are removed afterwards, so that a later ordinary import gets the whole library. When the layout of the
    package differs, the ordinary import is used.
    """
    global _loaded  # noqa: PLW0603 - one copy per process; the lock guards it
    with _import_lock:
        if _loaded is None:
            try:
                _loaded = _load_without_models()
            except (ImportError, AttributeError):
                client = importlib.import_module(f"{_PACKAGE}.client")
                _loaded = client.Configuration, importlib.import_module(f"{_PACKAGE}.config")
        return _loaded


def _load_without_models() -> tuple[type[Any], types.ModuleType]:
    if _PACKAGE in sys.modules:  # the whole library is loaded already
        client = importlib.import_module(f"{_PACKAGE}.client")
        return client.Configuration, importlib.import_module(f"{_PACKAGE}.config")
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(f"{_PACKAGE} is not installed")
    root = spec.submodule_search_locations[0]
    try:
        _place_holder(_PACKAGE, root)
        client = _place_holder(f"{_PACKAGE}.client", os.path.join(root, "client"))
        configuration = importlib.import_module(f"{_PACKAGE}.client.configuration").Configuration
        # What the config modules import from it; ApiClient is only named in functions that are not called here.
        client.__dict__.update(Configuration=configuration, ApiClient=object)
        return configuration, importlib.import_module(f"{_PACKAGE}.config")
    finally:
        for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]


def _place_holder(name: str, folder: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__path__ = [folder]
    sys.modules[name] = module
    return module


class CheckedBody(BytesPayload):
    """A request body that calls `check` at the moment of sending, after any wait for a connection.

    aiohttp offers no public hook between the wait for a connection and the first byte. An exception of `check` reaches
    the caller of the request as the `__cause__` of aiohttp's own exception.
    """

    def __init__(self, value: bytes, check: Callable[[], None], *, content_type: str) -> None:
        super().__init__(value, content_type=content_type)
        self._check = check

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        self._check()
        await super().write_with_length(writer, content_length)
