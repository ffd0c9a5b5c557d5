"""Source URIs: what they name, what is refused, and that nothing else is ever raised."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.names import MODEL_ID_PATTERN, SOURCE_URI_PATTERN
from api.source_uri import HubSource, S3Source, Source, SourceUriError, parse_source_uri, source_model_id

GOOD: dict[str, Source] = {
    "hf://org/name": HubSource("org", "name"),
    "hf://org/name/": HubSource("org", "name"),
    "hf://org/name@v1.0": HubSource("org", "name", revision="v1.0"),
    "hf://org/name/sub": HubSource("org", "name", "sub"),
    "hf://org/name/a/b@refs/pr/3": HubSource("org", "name", "a/b", "refs/pr/3"),
    "hf://Org.x/na_me-1.5@0123456789abcdef": HubSource("Org.x", "na_me-1.5", revision="0123456789abcdef"),
    "s3://b/x": S3Source("b", "x/"),
    "s3://Old_Bucket/x": S3Source("Old_Bucket", "x/"),
    "s3://bucket": S3Source("bucket"),
    "s3://bucket/": S3Source("bucket"),
    "s3://bucket/prefix": S3Source("bucket", "prefix/"),
    "s3://bucket/a/b/": S3Source("bucket", "a/b/"),
    "s3://bucket/a@b": S3Source("bucket", "a@b/"),
    "s3://my.bucket-1/adapters/cs-tone-v3/": S3Source("my.bucket-1", "adapters/cs-tone-v3/"),
}
BAD = [
    "",
    "org/name",
    "https://org/name",
    "HF://org/name",
    "hf:/org/name",
    "hf://",
    "hf://org",
    "hf://org/",
    "hf:///name",
    "hf://org//sub",
    "hf://org/name@",
    "hf://org/name/../other",
    "hf://org/name/./x",
    "hf://-org/name",
    "hf://org/na me",
    "hf://org/name\n",
    "hf://../name",
    "s3://",
    "s3:///key",
    "s3://-b/x",
    "s3://bu cket/x",
]


@pytest.mark.parametrize(("uri", "source"), GOOD.items(), ids=GOOD)
def test_good(uri: str, source: Source) -> None:
    assert parse_source_uri(uri) == source


@pytest.mark.parametrize("uri", BAD)
def test_bad(uri: str) -> None:
    with pytest.raises(SourceUriError):
        parse_source_uri(uri)


def test_the_error_shows_the_shape() -> None:
    with pytest.raises(SourceUriError, match=r"hf://org/name\[/subfolder\]\[@revision\]"):
        parse_source_uri("hf://org")


def test_the_model_id_of_a_hub_source_has_no_revision_and_no_subfolder() -> None:
    assert source_model_id("hf://google/gemma-3-27b-it/sub@main") == "google/gemma-3-27b-it"
    assert source_model_id("s3://bucket/prefix") is None


ANYTHING = st.none() | st.integers() | st.text() | st.lists(st.text())


@given(ANYTHING)
def test_model_id_is_total(value: object) -> None:
    source_model_id(value)


PIECES = st.text(st.sampled_from("ab1/@.-_: \t\n\\é%"), max_size=20)


@given(st.sampled_from(["", "hf://", "s3://", "ftp://"]), PIECES | st.text())
def test_parsing_raises_only_its_own_error(scheme: str, rest: str) -> None:
    try:
        source = parse_source_uri(scheme + rest)
    except SourceUriError:
        return
    if isinstance(source, HubSource):
        assert ".." not in source.subfolder.split("/")
        assert source.revision != ""
        assert source.repo.count("/") == 1
    else:
        assert source.bucket
        assert not source.prefix.startswith("/")
        assert not source.prefix or source.prefix.endswith("/")


NAME = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z")
ORGANISATION = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,20}\Z")


@given(ORGANISATION, NAME, st.lists(NAME, max_size=3), st.none() | NAME)
def test_a_hub_source_is_read_back(org: str, name: str, folders: list[str], revision: str | None) -> None:
    uri = f"hf://{'/'.join([org, name, *folders])}" + (f"@{revision}" if revision else "")
    source = parse_source_uri(uri)
    assert source == HubSource(org, name, "/".join(folders), revision)
    assert re.search(SOURCE_URI_PATTERN, uri)
    assert re.search(MODEL_ID_PATTERN, source.model_id), "mutation stores it, the schema must take it"


MEANT = {
    "https://huggingface.co/acme/french-lora": "write hf://acme/french-lora",
    "https://huggingface.co/acme/french-lora/tree/main": "write hf://acme/french-lora",
    "https://my-bucket.s3.eu-central-1.amazonaws.com/adapters/french/": "write s3://my-bucket/adapters/french/",
    "s3:/adapters/french": "write s3://adapters/french",
    "HF://acme/french-lora": "write hf://acme/french-lora",
    "acme/french-lora": "write hf://acme/french-lora",
    "oci://registry/french": "oci:// is not supported; write hf://org/name[/subfolder][@revision] or s3://bucket/prefix/",
    "french": "it must begin with hf:// or s3://; write hf://org/name[/subfolder][@revision] or s3://bucket/prefix/",
}


@pytest.mark.parametrize(("uri", "words"), MEANT.items(), ids=MEANT)
def test_the_source_that_was_probably_meant_is_suggested(uri: str, words: str) -> None:
    with pytest.raises(SourceUriError) as error:
        parse_source_uri(uri)
    assert str(error.value).endswith(words)
    if words.startswith("write "):
        parse_source_uri(words.removeprefix("write "))


@pytest.mark.parametrize(
    "uri", ["s3://AKIAEXAMPLE:secretkey@adapters/french?X=1", "https://user:token@hub.example/a/b"]
)
def test_credentials_are_not_repeated(uri: str) -> None:
    with pytest.raises(SourceUriError) as error:
        parse_source_uri(uri)
    shown = f"{error.value} {error.value.shown}"
    assert "secret" in str(error.value).lower()
    assert not {"AKIAEXAMPLE", "secretkey", "token"} & set(re.findall(r"\w+", shown))
