"""The page on the sources says what the code does: its fields, operations and examples are those of the code."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

from devcluster.sources import hubrepo, s3bucket
from devcluster.sources.faults import Rule, parse_rules
from devcluster.sources.hub import running_hub

PAGE = (Path(__file__).parents[3] / "docs" / "devcluster-sources.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_every_field_of_a_rule_is_explained() -> None:
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    missing = [f.name for f in fields(Rule) if f.name not in ("seen", "fired") and f"`{f.name}`" not in rows]
    assert not missing


def test_the_settings_shown_are_read() -> None:
    hub, s3 = blocks("json")
    settings = hubrepo.parse_settings(hub, "page")
    assert (settings.private, settings.gated, settings.allowed_tokens) == (True, "manual", ("hf_onlythis",))
    bucket = s3bucket.parse_settings(s3, "page")
    assert bucket.of("lora/a.safetensors").part_size == 8 << 20
    assert bucket.of("lora/a.json").checksum_type == "COMPOSITE"
    for parsed in (settings, bucket):
        assert all(f"`{f.name}`" in PAGE or f'"{f.name}"' in PAGE for f in fields(parsed))


def test_the_rule_that_is_posted_is_a_rule() -> None:
    posted = re.search(r"-d '(.*?)'", "\n".join(blocks("sh")))
    assert posted is not None
    assert parse_rules(json.loads(posted[1]))[0].status == 503


def test_the_python_example_runs(tmp_path: Path) -> None:
    import httpx

    weights = tmp_path / "acme" / "lora" / "adapter_model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(bytes(5000))

    def download(endpoint: str) -> None:
        url, had = f"{endpoint}/acme/lora/resolve/main/adapter_model.safetensors", bytearray()
        for _ in range(2):
            headers = {"Range": f"bytes={len(had)}-"} if had else {}
            try:
                with httpx.stream("GET", url, headers=headers, follow_redirects=True) as response:
                    for chunk in response.iter_raw():
                        had += chunk
            except httpx.RemoteProtocolError:
                continue
        assert len(had) == 5000

    exec(blocks("python")[0], {"root": tmp_path, "download": download, "running_hub": running_hub})
