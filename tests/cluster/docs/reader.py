"""A reader of the pages: does what they say, in their order, and compares what they show with what is said."""

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
    """A folder, an environment with kubectl and the plugin on the PATH, and all that was said so far."""

    folder: Path
    env: dict[str, str]
    said: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)  # what a reader has instead of the pages' examples

    @classmethod
    def at(cls, cluster: Cluster, namespace: str, place: Path) -> Reader:
        """Sit down at a desk: the repository's files, the tools, a kubeconfig whose namespace is the reader's own."""
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
        """Run commands, write files, look at what is shown."""
        for block in steps:
            if block.language in SHELL:
                self.run(block)
            elif block.title:
                (self.folder / block.title).write_text(self.own_words(block))
            else:
                self.compare(block)

    def run(self, block: Block) -> str:
        """Run a block as one script; it must end well, or badly where its mark says so."""
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
        """Return a block's text with what is known put in."""
        text = textwrap.dedent(block.text)
        for theirs, ours in self.known.items():
            text = text.replace(theirs, ours)
        return text

    def compare(self, block: Block) -> None:
        """What the page shows was said by the commands above it; an ellipsis stands for anything."""
        for line in block.text.splitlines():
            pattern = ".*".join(re.escape(part) for part in line.strip().split("…"))
            found = any(re.fullmatch(pattern, seen.strip()) for seen in self.said[-1].splitlines())
            assert found, f"{block.where}: nothing said {line!r}\n{self.said[-1]}"
