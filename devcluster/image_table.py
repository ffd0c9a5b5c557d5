"""The images that the process node knows: the product's and the model server's. Pure; the node reads a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from devcluster.content import MODEL_SERVER_IMAGE

SERVICE_IMAGE = "aim-adapters:dev"
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_USER = "1000:1000"
# images before AIM 0.13 ignore the adapter variables, whatever they are set to
_BEFORE_ADAPTERS = [f"aim-dev/model-server:0.{minor}.*" for minor in range(13)]


def render_images(python: Path) -> dict[str, Any]:
    """Return the image table; `python` is the interpreter whose environment has this project installed."""
    env = {"PATH": f"{python.parent}:{_SYSTEM_PATH}", "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    server = {"entrypoint": [str(python), "-m", "devcluster.model_server"], "env": env, "user": _USER}
    old = {**server, "env": {**env, "AIM_STAND_IN_IGNORE_ADAPTERS": "true"}}
    return {
        SERVICE_IMAGE: {"entrypoint": [str(python.parent / "aim-adapters")], "env": env, "user": _USER},
        MODEL_SERVER_IMAGE: server,
        **dict.fromkeys(_BEFORE_ADAPTERS, old),
        "aim-dev/model-server:*": server,
        "ghcr.io/acme/aim-*": server,  # the images of config/samples/
    }
