"""Opens the source that a specification names."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from api.job_env import CREDENTIAL_VARIABLES
from api.reasons import Reason
from api.source_uri import HubSource, SourceUriError, parse_source_uri
from disk.failures import DiskFailure
from disk.sources.base import Source, SourceOptions
from disk.sources.guard import refuse_link_local

_SETTINGS = ("HF_", "AWS_")


def trim_settings(environment: MutableMapping[str, str]) -> None:
    """Remove blanks and line ends around the credentials and settings of clients, as a file with a line end has them.

    Raises: DiskFailure where a blank or a line end is inside a credential: the message names the variable.
    """
    for name, value in environment.items():
        if not name.startswith(_SETTINGS) or value == value.strip():
            continue
        environment[name] = value.strip()
    for name in CREDENTIAL_VARIABLES:
        if any(character.isspace() for character in environment.get(name, "")):
            detail = f"the value of {name} has a blank or a line end inside"
            raise DiskFailure(Reason.SOURCE_CREDENTIALS_UNREADABLE, detail)


def open_source(options: SourceOptions) -> Source:
    """Return the source that a specification names, and import only the client library of this source.

    Raises: DiskFailure for a URI or an endpoint that cannot be used.
    """
    try:
        source = parse_source_uri(options.source_uri)
    except SourceUriError as error:
        raise DiskFailure(Reason.SOURCE_URI_INVALID, f'"{options.source_uri}": {error}') from error
    trim_settings(os.environ)
    if not options.allow_link_local:
        refuse_link_local()
    if isinstance(source, HubSource):
        from disk.sources.hub import HubReader  # noqa: PLC0415 - lazy: each client library costs start time

        return HubReader(source, options.hub_ca_file)
    from disk.sources.s3 import S3Reader  # noqa: PLC0415 - as above

    return S3Reader(source, options)
