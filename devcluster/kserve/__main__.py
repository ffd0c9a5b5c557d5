"""`python -m devcluster.kserve`: install the kind and its webhooks, then run the controller until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from devcluster.by_path import Kube
from devcluster.kserve.controller import Controller
from devcluster.kserve.schema import CRD_FILE
from devcluster.kserve.webhook import Webhooks
from devcluster.kserve.words import FIELD_MANAGER, KNATIVE, STANDARD, Settings
from kube.auth import NoCredentials
from kube.errors import ApiError

log = logging.getLogger("kserve")

READY_LINE = "kserve stand-in is ready"
_CRD_WITHIN_S = 30.0


async def install_crd(kube: Kube) -> None:
    """Write the CRD and wait until the API server serves the kind. Raises: ApiError, TimeoutError."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load(CRD_FILE.read_bytes(), Loader=loader)  # noqa: S506 (a safe loader, the fast one where it exists)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
    made = await kube.apply(path, crd, field_manager=FIELD_MANAGER, force=True)
    async with asyncio.timeout(_CRD_WITHIN_S):
        while not _established(made):
            await asyncio.sleep(0.05)
            made = await kube.get(path)


def _established(crd: dict[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


async def run(kubeconfig: Path, host: str, port: int, settings: Settings, ready_file: Path | None) -> None:
    """Serve until SIGTERM or SIGINT; nothing is deleted at the end. Raises: ApiError, OSError."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    webhooks = Webhooks(settings)
    with tempfile.TemporaryDirectory(prefix="aim-dev-kserve-") as folder:
        await webhooks.start(Path(folder), host, port)
        async with await Kube.connect(kubeconfig, user_agent="aim-dev-kserve") as kube:
            await install_crd(kube)
            await webhooks.register(kube)
            controller = asyncio.create_task(Controller(kube, settings).run())
            log.info(READY_LINE)
            if ready_file:
                await asyncio.to_thread(ready_file.write_text, "ready\n")
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait({controller, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            controller.cancel()
            outcome = (await asyncio.gather(controller, return_exceptions=True))[0]
            await webhooks.stop()
            if isinstance(outcome, Exception):
                raise outcome


def main(argv: list[str] | None = None) -> int:
    """Parse the command line and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m devcluster.kserve", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--listen", default="127.0.0.1:0", help="HOST:PORT of the webhooks (0: any free port)")
    parser.add_argument("--default-deployment-mode", choices=(STANDARD, KNATIVE), default=STANDARD)
    parser.add_argument("--no-service-account-token", action="store_true", help="default it away, as some clusters do")
    parser.add_argument("--ready-file", type=Path, help="written once the webhooks answer")
    options = parser.parse_args(argv)
    host, _, port = options.listen.rpartition(":")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stdout)
    settings = Settings(options.default_deployment_mode, options.no_service_account_token)
    try:
        asyncio.run(run(options.kubeconfig, host, int(port), settings, options.ready_file))
    except (ApiError, NoCredentials, OSError, TimeoutError, ValueError) as error:
        log.error("%s: %s", type(error).__name__, error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
