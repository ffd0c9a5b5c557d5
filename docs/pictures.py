"""The pictures of the README and the pages, made of what the programs say: `python docs/pictures.py [--dir FOLDER]`.

Brings up a development cluster of its own, or uses the one of FOLDER, applies a small story in a namespace of its own,
runs the real commands on a terminal and keeps what they print as SVG in docs/assets/pictures. A picture shows no more
than the command said, and fetches no font from elsewhere.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from api.view import JsonObject
from devcluster.base_models import BASE_MODELS
from devcluster.content import source_secrets
from devcluster.front import bring_up, take_down
from devcluster.info import gather
from devcluster.sample_adapters import SampleAdapter, write_adapter

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs/assets/pictures"
NAMESPACE = "team-llm"
COLUMNS, PATIENCE = 118, 90.0  # of the terminal; seconds for one state to come
SETTINGS = {"refresh_interval": "5s", "probe_period": "1s", "retry_base": "10m"}
TINY = next(model for model in BASE_MODELS if model.model_id == "acme/tiny-llama")
THEME = TerminalTheme(
    (24, 28, 36),
    (214, 220, 230),
    [(60, 66, 78), (255, 110, 103), (120, 220, 140), (240, 200, 100), (110, 170, 255), (210, 140, 255), (90, 210, 220),
     (214, 220, 230)],
    [(130, 138, 152), (255, 140, 130), (150, 240, 165), (255, 220, 130), (150, 195, 255), (225, 170, 255),
     (130, 230, 240), (245, 248, 255)],
)  # fmt: skip
_FONTS = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
SVG = _FONTS.sub("", CONSOLE_SVG_FORMAT).replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas")

# -- the story ------------------------------------------------------------------------------------------------------

WRONG = f"""\
apiVersion: aim.eai.amd.com/v1alpha2
kind: AIMService
metadata: {{name: support, namespace: {NAMESPACE}}}
spec:
  profile: {{name: tiny-mi300x}}
  adapterMode: dynamic
  minReplicas: 3
  maxReplicas: 1
  env: [{{name: STORAGE_URI, value: "s3://models"}}]
  adapters:
    - {{name: wide, kind: AIMArtifact}}
    - {{name: german, kind: AIMArtifact}}
"""


def adapter(name: str, **spec: Any) -> JsonObject:
    """Return an AIMArtifact of type adapter for the small base."""
    body = {"type": "adapter", "modelId": f"acme/{name}", "sourceUri": f"hf://acme/{name}", "rank": 16}
    return _object("v1alpha1", "AIMArtifact", name, body | {"compatibleWith": [TINY.model_id]} | spec)


def story(info: JsonObject) -> list[JsonObject]:
    """Return the objects of the pictures: a service with two good adapters and one whose source is not there."""
    names = ("sql", "german", "tone")
    adapters = [{"name": name, "kind": "AIMArtifact"} for name in names]
    service = {"profile": {"name": "tiny-mi300x"}, "adapterMode": "dynamic", "adapters": adapters}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *source_secrets(
            NAMESPACE,
            access_key=info["s3"]["accessKey"],
            secret_key=info["s3"]["secretKey"],
            token=info["hub"]["token"],
        ),
        adapter("sql"),
        adapter("german", rank=32),
        adapter("tone", sourceUri="hf://acme/tone-v3"),
        adapter("wide", rank=64, compatibleWith=["Qwen/Qwen3-8B"]),
        _object("v1alpha2", "AIMService", "chat", service),
    ]


def _object(version: str, kind: str, name: str, spec: JsonObject) -> JsonObject:
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": f"aim.eai.amd.com/{version}", "kind": kind, "metadata": metadata, "spec": spec}


# -- running and drawing --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Desk:
    """Where commands run: a folder with the manifests, the programs on the PATH, the cluster."""

    folder: Path
    kubectl: str
    env: dict[str, str]

    def ask(self, *words: str, stdin: str | None = None) -> str:
        """Run kubectl quietly; returns what it printed. Raises: CalledProcessError."""
        done = subprocess.run(  # noqa: S603 - the cluster's own kubectl
            [self.kubectl, *words], input=stdin, env=self.env, capture_output=True, text=True, timeout=60, check=True
        )
        return done.stdout

    def shown(self, command: str) -> str:
        """Run a command on a terminal of its own; returns what it printed, colours and all."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
        with subprocess.Popen(  # noqa: S603 - a command of this file
            ["/bin/bash", "-c", command],
            cwd=self.folder,
            env=self.env,
            stdout=follower,
            stderr=follower,
            close_fds=True,
        ) as running:
            os.close(follower)
            said = b""
            while True:
                try:
                    piece = os.read(leader, 65536)
                except OSError:  # the other end is closed: all was read
                    break
                if not piece:
                    break
                said += piece
            running.wait(60)
        os.close(leader)
        return said.decode().replace("\r\n", "\n")


def draw(name: str, title: str, command: str, said: str) -> None:
    """Keep a command and what it said as a picture."""
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.assemble(("$ ", "bright_black"), (command, "bold")))
    console.print(Text.from_ansi(said.rstrip("\n")), "", sep="\n", soft_wrap=False)  # the last row is cut otherwise
    PICTURES.mkdir(parents=True, exist_ok=True)
    svg = console.export_svg(title=title, theme=THEME, code_format=SVG, unique_id=name)
    (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")
    sys.stdout.write(f"docs/assets/pictures/{name}.svg\n")


def until(what: str, probe: Callable[[], bool]) -> None:
    """Wait for something. Raises: SystemExit when it does not come in time."""
    began = time.monotonic()
    while not probe():
        if time.monotonic() - began > PATIENCE:
            raise SystemExit(f"error: not within {PATIENCE:g} s: {what}")
        time.sleep(0.5)


def _states(desk: Desk) -> dict[str, str]:
    status = json.loads(desk.ask("get", "aimservice", "chat", "-n", NAMESPACE, "-o", "json")).get("status") or {}
    return {entry["name"]: entry["state"] for entry in status.get("adapters") or ()}


def make(info: JsonObject, folder: Path) -> None:
    """Play the story on a running cluster and draw it."""
    for name, rank in (("sql", 16), ("german", 32)):
        write_adapter(Path(info["hub"]["root"]), SampleAdapter(f"acme/{name}", TINY, rank))
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, place in (("kubectl", info["kubectl"]), ("kubectl-aim_adapters", _program())):
        (tools / name).unlink(missing_ok=True)
        (tools / name).symlink_to(place)
    env = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "KUBECONFIG")}
    env |= {"PATH": f"{tools}:{env['PATH']}", "KUBECONFIG": info["kubeconfig"], "TERM": "xterm-256color"}
    desk = Desk(folder, info["kubectl"], env | {"COLUMNS": str(COLUMNS)})
    (folder / "service.yaml").write_text(WRONG, encoding="utf-8")
    desk.ask("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": story(info)}))
    try:
        wanted = {"sql": "Loaded", "german": "Loaded", "tone": "Failed"}
        until(f"{wanted}", lambda: _states(desk) == wanted)
        for name, title, command in (
            ("refused", "a wrong manifest", "kubectl apply -f service.yaml"),
            ("status", "how it stands", f"kubectl aim-adapters status chat -n {NAMESPACE}"),
            ("why", "why it is not served", f"kubectl aim-adapters why chat tone -n {NAMESPACE}"),
        ):
            draw(name, title, command, desk.shown(command))
    finally:
        desk.ask("delete", "namespace", NAMESPACE, "--wait=false")


def _program() -> Path:
    return Path(sys.executable).parent / "kubectl-aim_adapters"


def main() -> int:
    """Make all pictures; returns the exit status."""
    parser = argparse.ArgumentParser(description="Make the pictures of the pages from what the programs say.")
    parser.add_argument("--dir", type=Path, help="folder of a running development cluster; else one is brought up")
    given: Path | None = parser.parse_args().dir
    with tempfile.TemporaryDirectory(prefix="aim-pictures-") as scratch:
        if given is not None:
            make(gather(given), Path(scratch))
            return 0
        cluster = Path(scratch) / "cluster"
        if (code := bring_up(cluster, SETTINGS, fresh=True, bare=False)) != 0:
            return code
        try:
            make(gather(cluster), Path(scratch))
        finally:
            take_down(cluster)
    return 0


if __name__ == "__main__":
    sys.exit(main())
