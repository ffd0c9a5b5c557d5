"""A reader of the pages: follows their steps in order, and compares the outputs that they show with the real ones."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from tests.cluster.conftest import Cluster
from tests.unit.docs.pages import ROOT, SHELL, Block

PATIENCE = 240  # seconds for one block


@dataclass
class Reader:
    """A folder, an environment with kubectl and the plugin on the PATH, and all output so far."""

    folder: Path
    env: dict[str, str]
    said: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)  # what replaces the examples in the pages

    @classmethod
    def at(cls, cluster: Cluster, namespace: str, place: Path) -> Reader:
        """Prepare the repository's files, the tools, and a kubeconfig with the reader's own namespace."""
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        for context in config["contexts"]:
            context["context"]["namespace"] = namespace
        kubeconfig = place / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(config))
        kubeconfig.chmod(0o600)
        folder, tools = place / "desk", place / "bin"
        folder.mkdir()
        tools.mkdir()
        (folder / "config").symlink_to(ROOT / "config")
        (tools / "kubectl").symlink_to(cluster.info["kubectl"])
        for name in ("aim-adapters", "kubectl-aim_adapters"):
            (tools / name).symlink_to(Path(sys.executable).parent / name)
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        env = {**os.environ, "PATH": path, "KUBECONFIG": str(kubeconfig), "NO_COLOR": "1"}
        return cls(folder, env | {"S3": cluster.info["s3"]["root"]})

    def follow(self, steps: Iterable[Block]) -> None:
        """Run commands, write files, compare outputs."""
        for block in steps:
            if block.language in SHELL:
                self.run(block)
            elif block.title:
                (self.folder / block.title).write_text(self.own_words(block))
            else:
                self.compare(block)

    def run(self, block: Block) -> str:
        """Run a block as one script; it must succeed, or fail if its mark says so."""
        script = f"set -euo pipefail\n{self.own_words(block)}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        self.said.append(done.stdout + done.stderr)
        fails = "fails" in block.mark.split()
        told = f"{block.where}: exit code {done.returncode}\n{block.text}\n{self.said[-1]}"
        assert (done.returncode != 0) == fails, told
        return self.said[-1]

    def own_words(self, block: Block) -> str:
        """Return a block's text with the known replacements."""
        text = textwrap.dedent(block.text)
        for theirs, ours in self.known.items():
            text = text.replace(theirs, ours)
        return text

    def compare(self, block: Block) -> None:
        """The commands above printed what the page shows; an ellipsis matches any text."""
        for line in block.text.splitlines():
            pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
            found = any(re.fullmatch(pattern, seen.strip()) for seen in self.said[-1].splitlines())
            assert found, f"{block.where}: nothing said {line!r}\n{self.said[-1]}"
