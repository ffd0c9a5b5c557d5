"""Fixtures of the disk's tests: sources on loopback, a fast folder, a clean environment, a process to fork."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.sources.hub import HubServer, running_hub
from devcluster.sources.s3 import S3Server, running_s3
from disk.sources.guard import allow_link_local_again
from tests.unit.disk.small import SmallProcess
from tests.unit.disk.world import fast_folder

TOKEN = "hf_unitTestTokenThatIsSecret"
ACCESS_KEY = "AKIAUNITTESTACCESSKEY"
SECRET_KEY = "unit/test+secret/key"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder in memory."""
    made = fast_folder()
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def small() -> Iterator[SmallProcess]:
    """A process that is cheap to fork."""
    with SmallProcess() as process:
        yield process


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of this machine reaches a client."""
    for name in list(os.environ):
        if name.startswith(("HF_", "AWS_")) or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)


@pytest.fixture
def hub(folder: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub over `folder/hub/ORG/NAME`, and the environment of a Job that may read it."""
    root = folder / "hub"
    root.mkdir()
    with running_hub(root, token=TOKEN) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield server
    allow_link_local_again()


@pytest.fixture
def s3(folder: Path, clean_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server over `folder/s3/BUCKET`, and the environment of a Job that may read it."""
    root = folder / "s3"
    root.mkdir()
    with running_s3(root, access_key=ACCESS_KEY, secret_key=SECRET_KEY) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        yield server
    allow_link_local_again()
