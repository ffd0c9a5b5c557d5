"""Who we are for the API server: address, TLS and the Authorization header, read by kubernetes-asyncio's loaders.

Only its configuration modules are loaded. Importing the package as its `__init__` does it brings some 800 generated
model classes that nothing here uses (measured: 36 MB of memory and a quarter of a second in every process).
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import ssl
import sys
import threading
import types
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

_PACKAGE = "kubernetes_asyncio"
_import_lock = threading.Lock()
_loaded: tuple[type[Any], types.ModuleType] | None = None

# A token from a command or an identity provider is asked for again this often; the loaders themselves keep one
# that has not expired. In-cluster tokens are read again once a minute by the loader's own hook.
KUBECONFIG_REFRESH = timedelta(minutes=1)


class NoCredentials(Exception):  # noqa: N818 - reads as what it is
    """Neither a kubeconfig nor a service account was found, or it cannot be used; the text says which and why."""


def load_library() -> tuple[type[Any], types.ModuleType]:
    """Return kubernetes-asyncio's `Configuration` class and its `config` module, without its generated models.

    Placeholders stand for the package while its two modules load, and are taken away again, so that a later
    ordinary import gets the whole library. Should its layout change, the ordinary import is used.
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
    if _PACKAGE in sys.modules:  # somebody paid for all of it already
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


@dataclass(slots=True)
class Credentials:
    """Address, TLS context and a source of Authorization headers for one API server."""

    server: str  # scheme://host:port, no slash at the end
    tls: ssl.SSLContext | None  # None: plain HTTP (tests)
    server_hostname: str | None
    proxy: str | None
    _configuration: Any
    _loader: Any = None  # kubeconfig loader; None in a pod
    _read_at: float = 0.0  # loop time of the last reading

    async def header(self) -> str | None:
        """Return the Authorization header for a request made now, or None where the TLS certificate speaks."""
        if self._loader is not None:
            loop_time = asyncio.get_running_loop().time()
            if loop_time - self._read_at > KUBECONFIG_REFRESH.total_seconds():
                await self.refresh()
        value = await self._configuration.get_api_key_with_prefix("BearerToken")
        return value.strip() if isinstance(value, str) else None

    async def refresh(self) -> None:
        """Read the credentials again: after a 401, and from time to time for tokens that a command makes."""
        if self._loader is None:
            self._forget_token_age()
            return
        self._read_at = asyncio.get_running_loop().time()
        await self._loader.load_and_set(self._configuration)

    def _forget_token_age(self) -> None:
        """Make the in-cluster loader read the token file on the next request."""
        hook = self._configuration.refresh_api_key_hook
        for cell in getattr(hook, "__closure__", None) or ():
            loader = cell.cell_contents
            if hasattr(loader, "token_expires_at"):
                loader.token_expires_at -= timedelta(days=1)


async def load_credentials(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """Return credentials from a kubeconfig (argument, else $KUBECONFIG, else in-cluster, else ~/.kube/config).

    Raises: NoCredentials with the places that were looked at.
    """
    configuration_class, config = load_library()
    configuration = configuration_class()
    path = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
            return _credentials(configuration, None)
        path = path or "~/.kube/config"
        if not _any_file(path):
            raise NoCredentials(
                f'no kubeconfig at "{path}" and no service account in this environment '
                "(give --kubeconfig, or set KUBECONFIG)"
            )
        loader = await config.load_kube_config(
            config_file=path, context=context, client_configuration=configuration, persist_config=False
        )
    except config.ConfigException as error:
        raise NoCredentials(f"credentials cannot be used: {error}") from error
    credentials = _credentials(configuration, loader)
    credentials._read_at = asyncio.get_running_loop().time()
    return credentials


def _any_file(paths: str) -> bool:
    """Tell whether one of the files exists; several are separated as in $PATH, as kubectl has it."""
    return any(os.path.isfile(os.path.expanduser(part)) for part in paths.split(os.pathsep) if part)


def plain_credentials(server: str) -> Credentials:
    """Return credentials for a server without TLS or authentication, for tests on loopback."""
    configuration_class, _ = load_library()
    return Credentials(server.rstrip("/"), None, None, None, configuration_class(host=server))


def _credentials(configuration: Any, loader: Any) -> Credentials:
    return Credentials(
        server=str(configuration.host).rstrip("/"),
        tls=_tls_context(configuration),
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
        _configuration=configuration,
        _loader=loader,
    )


def _tls_context(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
