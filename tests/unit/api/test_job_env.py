"""The allow-list of a Job's environment: what a tenant may set and what not."""

from __future__ import annotations

import pytest

from api.job_env import allowed_in_job, allowed_with_typed_s3
from rules.environment import job_env_allowed, job_env_allowed_beside_typed_s3

ALLOWED = [
    "HF_TOKEN",
    "HF_ENDPOINT",
    "HF_HUB_DOWNLOAD_TIMEOUT",
    "AWS_ACCESS_KEY_ID",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "HTTPS_PROXY",
    "no_proxy",
    "ALL_PROXY",
]
REFUSED = [
    "",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_HUB_OFFLINE",
    "HF_HUB_TOKEN_PATH",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_DATA_PATH",
    "AIMA_DISK",
    "AIM_ADAPTER_SOURCE",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "PATH",
    "HOME",
    "TMPDIR",
    "Http_Proxy",
    "http_proxy\n",
    "_PROXY",
    "AWS_",
    "aws_region",
]


@pytest.mark.parametrize("name", ALLOWED)
def test_sources_can_be_reached(name: str) -> None:
    assert allowed_in_job(name)


@pytest.mark.parametrize("name", REFUSED)
def test_variables_of_the_writer_cannot_be_set(name: str) -> None:
    assert not allowed_in_job(name)


def test_beside_a_typed_s3_block_no_credentials() -> None:
    assert not allowed_with_typed_s3("AWS_SECRET_ACCESS_KEY")
    assert not allowed_with_typed_s3("AWS_ENDPOINT_URL")
    assert allowed_with_typed_s3("AWS_MAX_ATTEMPTS")
    assert allowed_with_typed_s3("HF_TOKEN")


def test_admission_and_reconciler_share_the_list() -> None:
    assert job_env_allowed is allowed_in_job
    assert job_env_allowed_beside_typed_s3 is allowed_with_typed_s3
