"""`make demo`: shows the product on a cluster of its own.

Each step explains what it does, runs the real kubectl, shows the result, and checks it. A failed step shows what was
expected and what was seen; the exit code is then 1. At the end everything that was started is stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TypeVar

import yaml

from api.view import JsonObject
from devcluster.folder import Layout
from devcluster.front import bring_up, plain, take_down
from devcluster.info import gather
from devcluster.sample_adapters import GEMMA, SampleAdapter, write_adapter

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLE = REPOSITORY / "config/samples/aim_v1alpha2_lora_adapters.yaml"
SETTINGS = {"refresh_interval": "5s", "probe_period": "1s", "retry_base": "5s"}
PATIENCE = 90.0  # seconds for one step
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never use a proxy for loopback

SUPPORT_DE = SampleAdapter("acme/support-de", GEMMA, rank=8)  # on the hub
LEGAL = SampleAdapter("eai-artifacts/adapters/legal-r20", GEMMA, rank=20)  # in S3, put there late


class StepFailedError(Exception):
    """A step did not have the expected result."""

    def __init__(self, expected: str, seen: str) -> None:
        super().__init__(expected)
        self.expected, self.seen = expected, seen


@dataclass
class Demo:
    """A running cluster and the steps of the demo."""

    info: JsonObject

    # -- output -----------------------------------------------------------------------------------------------------

    def step(self, title: str) -> None:
        """Begin a step."""
        _print(f"\n== {title}")

    def say(self, text: str) -> None:
        """Print an explanation."""
        _print(f"   {text}")

    def run(self, *words: str, stdin: str | None = None, refused: bool = False, show: bool = True) -> str:
        """Run kubectl and show the command with its output. With `refused` it must fail."""
        done = subprocess.run(
            [self.info["kubectl"], "--kubeconfig", self.info["kubeconfig"], *words],
            cwd=REPOSITORY,  # the paths that are shown are relative to it
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        output = done.stdout + done.stderr
        if show:
            _print(f"$ kubectl {' '.join(_quoted(word) for word in words)}{_heredoc(stdin)}")
            _print("".join(f"  {line}\n" for line in output.splitlines()), end="")
        if (done.returncode != 0) != refused:
            raise StepFailedError("kubectl fails" if refused else "kubectl succeeds", output or "no output")
        return output

    def wait(self, what: str, probe: Callable[[], T | None]) -> T:
        """Wait until the probe returns a true value; show what the demo waits for, and for how long."""
        begun = shown = time.monotonic()
        seen: object = None
        while time.monotonic() - begun < PATIENCE:
            found = probe()
            if found:
                return found
            seen = found
            if time.monotonic() - shown > 5:
                shown = time.monotonic()
                self.say(f"… waiting for {what} ({shown - begun:.0f} s)")
            time.sleep(0.2)
        raise StepFailedError(f"{what} within {PATIENCE:.0f} s", self._state(seen))

    def _state(self, seen: object) -> str:
        """Return what was seen, and the objects; or that the cluster does not answer."""
        try:
            return self._objects(seen)
        except (StepFailedError, subprocess.SubprocessError, ValueError, KeyError) as error:
            said = error.seen if isinstance(error, StepFailedError) else str(error)
            return f"{seen!r}\nand the cluster does not answer: {said}"

    def _objects(self, seen: object) -> str:
        state = self.run("get", "aimsvc,aimart,isvc,jobs,pods", "-o", "wide", show=False)
        services = json.loads(self.run("get", "aimsvc", "-o", "json", show=False))
        statuses = [json.dumps(item.get("status"), indent=1) for item in services["items"]]
        return "\n".join([repr(seen), state, *statuses])

    # -- reading ----------------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str) -> JsonObject | None:
        """Return an object of the namespace `default`, or None."""
        text = self.run("get", kind, name, "-o", "json", "--ignore-not-found", show=False)
        return json.loads(text) if text.strip() else None

    def adapter(self, service: str, name: str) -> JsonObject:
        """Return an adapter's entry in the status, empty if there is none."""
        entries = ((self.get("aimsvc", service) or {}).get("status") or {}).get("adapters") or []
        return next((entry for entry in entries if entry["name"] == name), {})

    def isvc(self, service: str) -> JsonObject | None:
        """Return the service's InferenceService."""
        found = json.loads(
            self.run("get", "isvc", "-o", "json", "-l", f"aim.eai.amd.com/service={service}", show=False)
        )
        return found["items"][0] if found["items"] else None

    def pod(self, service: str) -> JsonObject | None:
        """Return the service's only running predictor pod."""
        selector = f"aim.eai.amd.com/service={service},component=predictor"
        found = json.loads(self.run("get", "pods", "-o", "json", "-l", selector, show=False))["items"]
        return found[0] if len(found) == 1 else None

    def models(self, service: str) -> list[str]:
        """Ask the model server which models it lists."""
        url = ((self.isvc(service) or {}).get("status") or {}).get("url")
        if not url:
            return []
        try:
            with _DIRECT.open(f"{url}/v1/models", timeout=5) as answer:
                return [entry["id"] for entry in json.load(answer)["data"]]
        except (OSError, HTTPException, ValueError, KeyError, TypeError):
            return []

    def show_models(self, service: str) -> None:
        """Show what the model server lists."""
        url = (self.isvc(service) or {})["status"]["url"]
        _print(f"$ curl {url}/v1/models")
        for name in self.models(service):
            _print(f"  {name}")

    def disk(self, service: str) -> Path:
        """Return the directory that the service's pods see as /adapters."""
        found = self.get("aimsvc", service) or {}
        claim: str = found["status"]["adapterDiskPersistentVolumeClaim"]
        uid: str = found["metadata"]["uid"]
        return Path(self.info["claims"]) / "default" / claim / uid

    def show_disk(self, service: str) -> None:
        """Show the files on the adapter disk of a service."""
        root = self.disk(service)
        _print(f"files on the adapter disk in {root}:")
        for path in sorted(root.rglob("*")):
            if path.is_file():
                _print(f"  {path.relative_to(root)}  {path.stat().st_size} bytes")

    # -- the steps --------------------------------------------------------------------------------------------------

    def worked_example(self) -> None:
        """Apply the worked example and wait until the adapter is served."""
        self.step("The worked example: a base model, an adapter in S3, a dynamic service")
        self.run("apply", "-f", str(SAMPLE.relative_to(REPOSITORY)))
        self.run("get", "aimsvc,aimart")
        self.wait(
            "adapter cs-tone-v3 to be loaded", lambda: self.adapter("gemma-cs", "cs-tone-v3").get("state") == "Loaded"
        )
        self.run("get", "aimsvc,aimart,isvc")
        self.show_disk("gemma-cs")
        self.show_models("gemma-cs")
        self._expect(
            "gemma-cs lists base and adapter", {"google/gemma-3-27b-it", "cs-tone-v3"}, set(self.models("gemma-cs"))
        )

    def add_and_remove(self) -> None:
        """Add an adapter from the hub to the running service, then remove the first one: nothing restarts."""
        self.step("Add an adapter from the hub, remove the first one: no restart")
        write_adapter(Path(self.info["hub"]["root"]), SUPPORT_DE)
        before = self._running("gemma-cs")
        self.run("apply", "-f", "-", stdin=_adapter("support-de", f"hf://{SUPPORT_DE.folder}", rank=8))
        self.run("apply", "-f", "-", stdin=_service("gemma-cs", ["cs-tone-v3", "support-de"]))
        self._wait_state("gemma-cs", "support-de", "Loaded")
        self.run("get", "aimsvc", "gemma-cs")
        self.show_models("gemma-cs")
        self.run("apply", "-f", "-", stdin=_service("gemma-cs", ["support-de"]))
        self.wait("adapter cs-tone-v3 to be unloaded", lambda: "cs-tone-v3" not in self.models("gemma-cs"))
        gone = self.disk("gemma-cs") / "cs-tone-v3"
        self.wait("its directory to be removed", lambda: not gone.exists())
        self.wait("its entry to be removed from the status", lambda: not self.adapter("gemma-cs", "cs-tone-v3"))
        self.show_disk("gemma-cs")
        self.show_models("gemma-cs")
        self._expect("the same pod without a restart, and the same InferenceService", before, self._running("gemma-cs"))
        self.say(", ".join(f"{key} {value}" for key, value in before.items()) + ": unchanged")

    def static_service(self) -> None:
        """Show a static service: its InferenceService waits for all adapters, and the rank ceiling is derived."""
        self.step("A static service waits for all its adapters, and derives its rank ceiling")
        self.run("apply", "-f", "-", stdin=_adapter("legal-r20", f"s3://{LEGAL.folder}/", rank=20))
        self.run("apply", "-f", "-", stdin=_service("gemma-static", ["legal-r20", "support-de"], mode="static"))
        self.wait(
            "adapter legal-r20 to fail, since its S3 prefix does not exist yet",
            lambda: self.adapter("gemma-static", "legal-r20").get("state") == "Failed",
        )
        self.wait(
            "adapter support-de to be downloaded",
            lambda: self.adapter("gemma-static", "support-de").get("state") == "Downloaded",
        )
        self.run(
            "get",
            "aimsvc",
            "gemma-static",
            "-o",
            "jsonpath={range .status.adapters[*]}{.name}: {.state} {.lastError}{'\\n'}{end}",
        )
        self._expect("no InferenceService while an adapter is missing", None, self.isvc("gemma-static"))
        self.say("There is no InferenceService yet. Now the demo puts the files into the bucket and requests a retry:")
        write_adapter(Path(self.info["s3"]["root"]), LEGAL)
        self.run("annotate", "aimsvc", "gemma-static", "aim.eai.amd.com/retry-staging=1", "--overwrite")
        self.wait("both adapters to be served", lambda: {"legal-r20", "support-de"} <= set(self.models("gemma-static")))
        self.wait("the service to be ready", lambda: self._phase("gemma-static") == "Running")
        self.run("get", "aimsvc", "gemma-static")
        ceiling = (self.get("aimsvc", "gemma-static") or {})["status"]["adapterMaxRank"]
        self._expect("ranks 20 and 8 need the ceiling 32", 32, ceiling)
        self.say(f"status.adapterMaxRank is {ceiling}: the largest rank, 20, rounded up")

    def refusals(self) -> None:
        """Show what `kubectl apply` refuses, and how to fix it."""
        self.step("What kubectl apply refuses")
        cases: list[tuple[str, str, str]] = [
            (
                "the mode cannot be changed after creation",
                _service("gemma-cs", ["support-de"], mode="static"),
                "spec.adapterMode",
            ),
            (
                "the list of a static service cannot be changed",
                _service("gemma-static", ["support-de"], mode="static"),
                "spec.adapters",
            ),
            (
                "a static service derives its ceiling, so it cannot be set",
                _service("refused", ["support-de"], mode="static", max_rank=64),
                "spec.adapterRuntime.maxRank",
            ),
            (
                "two adapters that the server would list under the same name",
                _service("refused", ["support-de", "restored"]),
                "spec.adapters[1].name",
            ),
            (
                "a profile without the feature adapters",
                _service("refused", ["support-de"], profile="plain"),
                "spec.profileOverrides.features",
            ),
            ("an adapter of another base model", _service("refused", ["for-another-base"]), "spec.adapters[0].name"),
            ("a rank above the ceiling", _service("refused", ["wide"]), "spec.adapters[0].name"),
        ]
        self._prepare_refusals()
        for why, manifest, path in cases:
            self.say(f"-- {why}")
            said = self.run("apply", "-f", "-", stdin=manifest, refused=True)
            self._expect(f"the message names {path}", True, path in said and "is invalid" in said)

    def _prepare_refusals(self) -> None:
        """Create the objects that the refused manifests refer to."""
        self.run("apply", "-f", "-", stdin=_adapter("restored", f"hf://{SUPPORT_DE.folder}", rank=8), show=False)
        frozen = '{"status":{"adapterPath":"support-de"}}'
        self.run("patch", "aimart", "restored", "--subresource=status", "--type=merge", "-p", frozen, show=False)
        other = _adapter("for-another-base", f"hf://{SUPPORT_DE.folder}", fits="acme/tiny-llama")
        self.run("apply", "-f", "-", stdin=other, show=False)
        self.run("apply", "-f", "-", stdin=_adapter("wide", f"hf://{SUPPORT_DE.folder}", rank=64), show=False)
        profile = self.get("aimprf", "gemma-3-27b-it-mi300x-bf16") or {}
        plain = {key: profile[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {"name": "plain"}}
        del plain["spec"]["features"]
        self.run("apply", "-f", "-", stdin=json.dumps(plain), show=False)

    def _wait_state(self, service: str, adapter: str, state: str) -> None:
        self.wait(f"adapter {adapter} to be {state}", lambda: self.adapter(service, adapter).get("state") == state)

    def _running(self, service: str) -> JsonObject:
        pod, isvc = self.pod(service), self.isvc(service)
        if pod is None or isvc is None:
            raise StepFailedError(f"one predictor pod of {service}", self._state(None))
        restarts = sum(status["restartCount"] for status in pod["status"]["containerStatuses"])
        return {"pod": pod["metadata"]["uid"], "restarts": restarts, "generation": isvc["metadata"]["generation"]}

    def _phase(self, service: str) -> str | None:
        return ((self.get("aimsvc", service) or {}).get("status") or {}).get("status")

    def _expect(self, what: str, wanted: object, seen: object) -> None:
        if wanted != seen:
            raise StepFailedError(f"{what}: {wanted!r}", f"{seen!r}\n{self._state(None)}")


def _adapter(name: str, source: str, *, rank: int | None = None, fits: str = GEMMA.model_id) -> str:
    spec: JsonObject = {"type": "adapter", "modelId": f"acme/{name}", "compatibleWith": [fits], "sourceUri": source}
    if rank is not None:
        spec["rank"] = rank
    return _manifest("aim.eai.amd.com/v1alpha1", "AIMArtifact", name, spec)


def _service(
    name: str,
    adapters: list[str],
    *,
    mode: str = "dynamic",
    profile: str = "gemma-3-27b-it-mi300x-bf16",
    max_rank: int | None = None,
) -> str:
    spec: JsonObject = {
        "profile": {"name": profile},
        "adapterMode": mode,
        "adapters": [{"name": adapter, "kind": "AIMArtifact"} for adapter in adapters],
    }
    if max_rank is not None:
        spec["adapterRuntime"] = {"maxRank": max_rank}
    return _manifest("aim.eai.amd.com/v1alpha2", "AIMService", name, spec)


def _manifest(api_version: str, kind: str, name: str, spec: JsonObject) -> str:
    return json.dumps({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec})


def _heredoc(manifest: str | None) -> str:
    """Return the here-document of `-f -`: the manifest as YAML."""
    if manifest is None:
        return ""
    text = yaml.safe_dump(json.loads(manifest), sort_keys=False)
    return f" <<'EOF'\n{textwrap.indent(text, '    ')}  EOF"


def _quoted(word: str) -> str:
    return f"'{word}'" if any(char in word for char in ' {}[]|"') else word


def _print(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def run_steps(demo: Demo) -> int:
    """Run all steps; return the exit code."""
    for chapter in (demo.worked_example, demo.add_and_remove, demo.static_service, demo.refusals):
        try:
            chapter()
        except StepFailedError as error:
            _print(f"\nFAILED\n  expected: {error.expected}\n  seen: {error.seen}")
            return 1
        except Exception as error:
            wanted = (chapter.__doc__ or chapter.__name__).splitlines()[0]
            _print(f"\nFAILED\n  expected: {wanted}\n  seen: {type(error).__name__}: {error}")
            return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Start a cluster, run the steps, stop the cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=Path(".aim-dev/demo"), help="folder of the cluster")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running, and print commands to try")
    options = parser.parse_args(arguments)
    plain(sys.stdout)
    folder = options.dir.resolve()
    try:
        with _alone(folder):
            return _run(folder, keep=options.keep)
    except BlockingIOError:
        _print(f"another demo is running in {folder}: wait for its end, or choose another folder with --dir")
    except OSError as error:
        _print(f"FAILED\n  expected: {folder} is writable\n  seen: {type(error).__name__}: {error}")
    return 1


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Prevent a second demo from deleting the cluster of this one. Raises: BlockingIOError, OSError."""
    run = Layout(folder).run  # kept by --fresh
    run.mkdir(parents=True, exist_ok=True)
    with (run / "demo.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def _run(folder: Path, *, keep: bool) -> int:
    """Run the demo; return the exit code. An interrupt stops everything that was started, too."""
    begun = time.monotonic()
    _print(f"Starting a cluster in {folder} (logs: aim-adapters dev logs NAME --dir {folder}).")
    _print("The first run builds the programs, which takes some minutes. Later runs take about a minute.\n")
    code = bring_up(folder, SETTINGS, fresh=True, bare=False)
    if code != 0:
        return code
    try:
        code = run_steps(Demo(gather(folder)))
    except KeyboardInterrupt:
        _print("\ninterrupted: stopping the cluster")
        code, keep = 130, False
    finally:
        if not keep:
            take_down(folder)
    _print(
        f"\n{'Done' if code == 0 else 'Failed' if code == 1 else 'Interrupted'} in {time.monotonic() - begun:.0f} s."
    )
    if keep:
        _suggest(folder)
    return code


def _suggest(folder: Path) -> None:
    info = gather(folder)
    _print(f"""
The cluster keeps running. To look around:
  export KUBECONFIG={info["kubeconfig"]}
  alias kubectl={info["kubectl"]}
  kubectl get aimsvc,aimart,isvc,pods
  kubectl describe aimsvc gemma-cs
  aim-adapters dev info --dir {folder}
To stop it:
  aim-adapters dev down --dir {folder}""")


if __name__ == "__main__":
    sys.exit(main())
