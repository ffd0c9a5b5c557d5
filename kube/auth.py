"""The identity of this process for the API server: address, TLS and the Authorization header.

kubernetes-asyncio's loaders read kubeconfigs (certificates, tokens, commands, OpenID) and the service account of a pod.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from kube.doors import load_library

# Credentials are read again this often: a kubelet replaces the token file of a pod, and a token from a command or an
# identity provider expires. The kubeconfig loader itself keeps a token that has not expired.
REFRESH = timedelta(minutes=1)
TOKEN_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")  # of a pod; as kubernetes-asyncio reads it


class NoCredentials(Exception):  # noqa: N818 - reads as what it is
    """Neither a kubeconfig nor a service account was found, or it cannot be used; the text says which and why."""


@dataclass(slots=True)
class Credentials:
    """Address, TLS context and a source of Authorization headers for one API server."""

    server: str  # scheme://host:port, no slash at the end
    tls: ssl.SSLContext | None  # None: plain HTTP (tests)
    server_hostname: str | None
    proxy: str | None
    _configuration: Any
    _loader: Any = None  # kubeconfig loader; None in a pod
    _token_file: Path | None = None  # of the pod's service account; None with a kubeconfig
    _token: str = ""  # from the token file
    _read_at: float = float("-inf")  # loop time of the last reading

    async def header(self) -> str | None:
        """Return the Authorization header for a request made now, or None where the TLS certificate identifies us.

        Raises: OSError when the token file of a pod cannot be read.
        """
        if self._loader is None and self._token_file is None:
            return None
        now = asyncio.get_running_loop().time()
        expired = now - self._read_at > REFRESH.total_seconds()
        if self._token_file is not None:
            if expired:  # a file in memory (a projected volume): no thread is needed
                self._token = self._token_file.read_text().strip()
                self._read_at = now
            return f"Bearer {self._token}"
        if expired:
            await self.refresh()
        value = await self._configuration.get_api_key_with_prefix("BearerToken")
        return value.strip() if isinstance(value, str) else None

    async def refresh(self) -> None:
        """Read the credentials again for the next request: after a 401, and once in `REFRESH`."""
        if self._loader is None:
            self._read_at = float("-inf")
            return
        self._read_at = asyncio.get_running_loop().time()
        await self._loader.load_and_set(self._configuration)


async def load_credentials(kubeconfig: str | None = None, context: str | None = None) -> Credentials:
    """Return credentials from a kubeconfig (argument, else $KUBECONFIG, else in-cluster, else ~/.kube/config).

    Raises: NoCredentials with the places that were looked at.
    """
    configuration_class, config = load_library()
    configuration = configuration_class()
    path = kubeconfig or os.environ.get("KUBECONFIG")
    try:
        if not path and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
            return _credentials(configuration, token_file=TOKEN_FILE)
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
    credentials = _credentials(configuration, loader=loader)
    credentials._read_at = asyncio.get_running_loop().time()
    return credentials


def _any_file(paths: str) -> bool:
    """Return whether one of the files exists; several are separated as in $PATH, as kubectl does."""
    return any(os.path.isfile(os.path.expanduser(part)) for part in paths.split(os.pathsep) if part)


def plain_credentials(server: str) -> Credentials:
    """Return credentials for a server without TLS or authentication, for tests on loopback."""
    return Credentials(server.rstrip("/"), None, None, None, None)


def _credentials(configuration: Any, *, loader: Any = None, token_file: Path | None = None) -> Credentials:
    return Credentials(
        server=str(configuration.host).rstrip("/"),
        tls=_tls_context(configuration),
        server_hostname=configuration.tls_server_name,
        proxy=configuration.proxy,
        _configuration=configuration,
        _loader=loader,
        _token_file=token_file,
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
