"""A model server without a model: it honours the AIM_ADAPTER_* variables and answers with what it loaded.

`python -m devcluster.model_server` is what the process node runs for an inference image. It scans, skips, loads,
unloads and refuses by the rules of the AIM runtime (docs/contract.md, AIM runtime), really reads every file that it
claims to have loaded, and names the content in each answer, so that a test sees *which* bytes served. It never writes
to a mount.

Settings of the stand-in itself, all optional (the AIM_* variables are read too):

AIM_STAND_IN_STATE            a directory in which each start is counted
AIM_STAND_IN_START_DELAY      seconds before it listens
AIM_STAND_IN_REFRESH_SECONDS  a watcher interval below the runtime's minimum of five seconds
AIM_STAND_IN_PROFILES         where runtime profiles are mounted (/workspace/aim-runtime/profiles)
AIM_STAND_IN_FEATURES         features of the image's own profile (adapters)
AIM_STAND_IN_IGNORE_ADAPTERS  "true": an image before AIM 0.13, no adapter is ever loaded
AIM_STAND_IN_NEVER_LIST       names, comma separated: loaded with success, never listed
AIM_STAND_IN_REJECT           names, comma separated: loading answers 400
AIM_STAND_IN_KEEP             names, comma separated: unloading answers 500, they stay listed
AIM_STAND_IN_FAIL_LOADS       name=count, comma separated: this many loads answer 503 first
AIM_STAND_IN_CRASH_AT_START   "true": exit 1 at once; a number: at each of this many first starts (needs STATE)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import re
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from devcluster.httpd import Request, Response, Server

log = logging.getLogger("model-server")

CONFIG_FILE = "adapter_config.json"
SAFETENSORS_FILE = "adapter_model.safetensors"
BIN_FILE = "adapter_model.bin"
DIRECTORY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
SUPPORTED_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
FEATURES = ("adapters", "adapters-scale-only")
DEFAULT_SOURCE = "/workspace/cache/adapters/"
DEFAULT_PROFILES = "/workspace/aim-runtime/profiles"
MAX_HEADER_BYTES = 100_000_000  # the safetensors library's own limit


class StartRefusedError(Exception):
    """The server will not start; the message is its last log line."""


# --- settings -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AdapterSettings:
    """What the AIM_ADAPTER_* variables say, after their fallbacks. `refresh_s` is in seconds."""

    source: Path
    source_is_set: bool
    dynamic: bool
    refresh_s: float
    max_count: int
    max_cpu_count: int
    max_rank: int


@dataclass(frozen=True, slots=True)
class Quirks:
    """How the stand-in was asked to misbehave."""

    never_list: frozenset[str] = frozenset()
    reject: frozenset[str] = frozenset()
    keep: frozenset[str] = frozenset()
    fail_loads: Mapping[str, int] = field(default_factory=dict)


def parse_adapter_settings(env: Mapping[str, str]) -> AdapterSettings:
    """Read the AIM_ADAPTER_* variables; an invalid value falls back to the default, with a log line."""
    source = env.get("AIM_ADAPTER_SOURCE", "").strip()
    max_count = _integer(env, "AIM_ADAPTER_MAX_COUNT", 8, minimum=1)
    max_cpu_count = _integer(env, "AIM_ADAPTER_MAX_CPU_COUNT", 16, minimum=1)
    if max_cpu_count < max_count:
        log.warning("AIM_ADAPTER_MAX_CPU_COUNT=%d is below AIM_ADAPTER_MAX_COUNT: using %d", max_cpu_count, max_count)
    max_rank = _integer(env, "AIM_ADAPTER_MAX_RANK", 32, minimum=1)
    if max_rank not in SUPPORTED_RANKS:
        log.warning("AIM_ADAPTER_MAX_RANK=%d is not supported: using 32", max_rank)
        max_rank = 32
    refresh_s = float(_integer(env, "AIM_ADAPTER_REFRESH_INTERVAL", 30, minimum=5))
    with contextlib.suppress(KeyError, ValueError):
        refresh_s = max(0.05, float(env["AIM_STAND_IN_REFRESH_SECONDS"]))
    return AdapterSettings(
        source=Path(source or DEFAULT_SOURCE),
        source_is_set=bool(source),
        dynamic=_mode(env) == "dynamic",
        refresh_s=refresh_s,
        max_count=max_count,
        max_cpu_count=max(max_count, max_cpu_count),
        max_rank=max_rank,
    )


def _mode(env: Mapping[str, str]) -> str:
    mode = env.get("AIM_ADAPTER_MODE", "").strip().lower()
    if mode not in {"static", "dynamic", ""}:
        log.warning("AIM_ADAPTER_MODE=%s is neither static nor dynamic: using static", mode)
    return mode if mode == "dynamic" else "static"


def _integer(env: Mapping[str, str], name: str, default: int, *, minimum: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = minimum - 1
    if value < minimum:
        log.warning("%s=%s is not an integer of at least %d: using %d", name, text, minimum, default)
        return default
    return value


def parse_quirks(env: Mapping[str, str]) -> Quirks:
    """Read the AIM_STAND_IN_* variables that change how loads are answered. Raises: StartRefusedError."""
    counts: dict[str, int] = {}
    for entry in _names(env, "AIM_STAND_IN_FAIL_LOADS"):
        name, _, count = entry.partition("=")
        try:
            counts[name] = int(count or "1")
        except ValueError as error:
            raise StartRefusedError(f"AIM_STAND_IN_FAIL_LOADS: {entry!r} is not name=count") from error
    return Quirks(
        never_list=_names(env, "AIM_STAND_IN_NEVER_LIST"),
        reject=_names(env, "AIM_STAND_IN_REJECT"),
        keep=_names(env, "AIM_STAND_IN_KEEP"),
        fail_loads=counts,
    )


def _names(env: Mapping[str, str], name: str) -> frozenset[str]:
    return frozenset(part.strip() for part in env.get(name, "").split(",") if part.strip())


# --- the runtime profile --------------------------------------------------------------------------------------------


def resolve_feature(env: Mapping[str, str]) -> str | None:
    """Return the one feature token that gates LoRA, or None when the profile has none.

    Raises: StartRefusedError when a custom profile is missing or is one that the image refuses.
    Source: docs/contract.md, Runtime profile file.
    """
    profile_id = env.get("AIM_PROFILE_ID", "").strip()
    if not profile_id.startswith("custom/"):
        names = sorted(_names({"AIM_STAND_IN_FEATURES": "adapters", **env}, "AIM_STAND_IN_FEATURES"))
        return _one_feature(names, "the image's own profile")
    root = Path(env.get("AIM_STAND_IN_PROFILES") or DEFAULT_PROFILES)
    path = root / f"{profile_id}.yaml"
    if ".." in Path(profile_id).parts or not path.is_file():
        raise StartRefusedError(f"AIM_PROFILE_ID={profile_id}: no profile file {path}")
    return check_profile(path.read_bytes(), str(path))


def check_profile(raw: bytes, where: str) -> str | None:
    """Return the feature of a profile file. Raises: StartRefusedError for a file that the image refuses."""
    import yaml  # noqa: PLC0415 (most starts need no YAML)

    try:
        profile = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        raise StartRefusedError(f"{where}: not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(profile, dict):
        raise StartRefusedError(f"{where}: not a mapping")
    for key, kind in _PROFILE_FIELDS:
        if key in profile and not isinstance(profile[key], kind):
            raise StartRefusedError(f"{where}: {key} must be a {kind.__name__}, is {profile[key]!r}")
    for key in ("aim_id", "model_id", "metadata"):
        if not profile.get(key):
            raise StartRefusedError(f"{where}: {key} is missing")
    features = profile["metadata"].get("features") or []
    if not isinstance(features, list):
        raise StartRefusedError(f"{where}: metadata.features must be a list, is {features!r}")
    return _one_feature(features, where)


_PROFILE_FIELDS: tuple[tuple[str, type], ...] = (
    ("aim_id", str),
    ("model_id", str),
    ("metadata", dict),
    ("engine_args", dict),
    ("env_vars", dict),
)


def _one_feature(features: list[Any], where: str) -> str | None:
    for token in features:
        if token not in FEATURES:
            raise StartRefusedError(f"{where}: unknown feature {token!r} (known: {', '.join(FEATURES)})")
    if len(features) > 1:
        raise StartRefusedError(f"{where}: at most one feature is allowed, found {', '.join(features)}")
    return str(features[0]) if features else None


# --- adapters on disk -----------------------------------------------------------------------------------------------

Signature = tuple[tuple[int, int], ...]  # (size in bytes, mtime in ns) of the configuration and of the weights


@dataclass(frozen=True, slots=True)
class Found:
    """An adapter directory that passed the scan."""

    name: str
    path: Path
    signature: Signature


@dataclass(frozen=True, slots=True)
class Scan:
    """One look at the source: what may be served, in order of name, and (name, reason) of what is skipped."""

    found: tuple[Found, ...]
    skipped: tuple[tuple[str, str], ...]


def scan(source: Path, max_rank: int) -> Scan:
    """Look at `<source>/*/adapter_config.json` in order of directory names; a missing source is an empty one."""
    found: list[Found] = []
    skipped: list[tuple[str, str]] = []
    try:
        names = sorted(entry.name for entry in os.scandir(source) if entry.is_dir())
    except OSError:
        names = []
    for name in names:
        directory = source / name
        if not (directory / CONFIG_FILE).is_file():
            continue
        reason = _why_skipped(directory, max_rank)
        signature = _signature(directory) if reason is None else None
        if signature is None:
            skipped.append((name, reason or "it vanished"))
        else:
            found.append(Found(name, directory, signature))
    return Scan(tuple(found), tuple(skipped))


def _why_skipped(directory: Path, max_rank: int) -> str | None:
    if not DIRECTORY_NAME.fullmatch(directory.name):
        return f"its name does not match ^{DIRECTORY_NAME.pattern}$"
    if _weights(directory) is None:
        return f"neither {SAFETENSORS_FILE} nor {BIN_FILE} is there"
    try:
        config = json.loads((directory / CONFIG_FILE).read_bytes())
    except OSError as error:
        return f"{CONFIG_FILE} cannot be read: {error.strerror}"
    except ValueError:
        return f"{CONFIG_FILE} is not JSON"
    if not isinstance(config, dict):
        return f"{CONFIG_FILE} is not a JSON object"
    if "r" not in config:
        return None
    rank = config["r"]
    if not isinstance(rank, int) or isinstance(rank, bool):
        return f"r is {rank!r}, not an integer"
    return f"its rank {rank} is above the maximum of {max_rank}" if rank > max_rank else None


def _weights(directory: Path) -> Path | None:
    """Return the weights file; safetensors win if both exist."""
    return next((directory / name for name in (SAFETENSORS_FILE, BIN_FILE) if (directory / name).is_file()), None)


def _signature(directory: Path) -> Signature | None:
    weights = _weights(directory)
    try:
        stats = [] if weights is None else [(directory / CONFIG_FILE).stat(), weights.stat()]
    except OSError:
        return None
    return tuple((s.st_size, s.st_mtime_ns) for s in stats) or None


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter whose files were read: `weights_sha256` identifies the loaded bytes."""

    name: str
    path: str
    rank: int
    base: str
    weights_sha256: str


def read_adapter(name: str, directory: Path, max_rank: int) -> Adapter:
    """Read an adapter as an engine does. Raises: ValueError with the cause, OSError when a file cannot be read."""
    config = json.loads((directory / CONFIG_FILE).read_bytes())
    if not isinstance(config, dict):
        raise ValueError(f"{CONFIG_FILE} is not a JSON object")
    rank = _checked_rank(config, max_rank)
    weights = _weights(directory)
    if weights is None:
        raise ValueError("no weights file")
    raw = weights.read_bytes()
    if weights.name == SAFETENSORS_FILE:
        _check_safetensors(raw, max_rank)
    else:
        _check_bin(weights)
    base = str(config.get("base_model_name_or_path") or "")
    return Adapter(name, str(directory), rank, base, hashlib.sha256(raw).hexdigest())


def _checked_rank(config: dict[str, Any], max_rank: int) -> int:
    """Return `r`. Raises: ValueError for what engines refuse in a configuration (seen in vLLM)."""
    if str(config.get("peft_type") or "LORA").upper() != "LORA":
        raise ValueError(f"peft_type {config.get('peft_type')!r} is not LORA")
    missing = [key for key in ("r", "lora_alpha") if config.get(key) is None]
    missing += [] if "target_modules" in config else ["target_modules"]
    if missing:
        raise ValueError(f"{CONFIG_FILE} lacks {', '.join(missing)}")
    rank = int(config["r"]) if isinstance(config["r"], float) and config["r"].is_integer() else config["r"]
    if not isinstance(rank, int) or isinstance(rank, bool) or rank < 1:
        raise ValueError(f"r is {rank!r}, not a positive integer")
    if rank > max_rank:
        raise ValueError(f"rank {rank} is above the maximum of {max_rank}")
    if config.get("use_dora"):
        raise ValueError("DoRA is not supported")
    if set(config.get("modules_to_save") or ()) - {"classifier", "score"}:
        raise ValueError("modules_to_save is not supported")
    if config.get("bias", "none") != "none":
        raise ValueError(f"adapter bias {config['bias']!r} is not supported")
    return rank


def _check_safetensors(raw: bytes, max_rank: int) -> None:
    """Raises: ValueError unless the header is complete, the data as long as it says, and no tensor above the rank."""
    if len(raw) < 8:
        raise ValueError(f"{SAFETENSORS_FILE} ends within its header")
    length = int.from_bytes(raw[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"{SAFETENSORS_FILE}: header too large (is it a pointer file?)")
    if len(raw) < 8 + length:
        raise ValueError(f"{SAFETENSORS_FILE} ends within its header")
    try:
        header = json.loads(raw[8 : 8 + length])
        tensors = {name: entry for name, entry in header.items() if name != "__metadata__"}
        end = max((int(entry["data_offsets"][1]) for entry in tensors.values()), default=0)
        ranks = [int(e["shape"][0]) for n, e in tensors.items() if ".lora_A" in n and ".experts." not in n]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"{SAFETENSORS_FILE}: malformed header") from error
    if len(raw) != 8 + length + end:
        raise ValueError(f"{SAFETENSORS_FILE} has {len(raw)} bytes, its header says {8 + length + end}")
    if max(ranks, default=0) > max_rank:
        raise ValueError(f"a tensor of rank {max(ranks)} is above the maximum of {max_rank}")


def _check_bin(path: Path) -> None:
    """Raises: ValueError unless the file is a whole zip archive with a pickle (it is never unpickled)."""
    import zipfile  # noqa: PLC0415 (rarely needed)

    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() or not any(n.endswith("/data.pkl") for n in archive.namelist()):
                raise ValueError(f"{BIN_FILE} is damaged")
    except zipfile.BadZipFile as error:
        raise ValueError(f"{BIN_FILE} is not a zip archive") from error


# --- the engine -----------------------------------------------------------------------------------------------------

Answer = tuple[int, str]  # HTTP status and its message


class Engine:
    """The base model and the adapters that are loaded, in order of loading.

    At most `max_cpu_count` adapters stay in memory: the least recently used one is dropped, stays listed, and is read
    again from its directory when a request names it, as in vLLM.
    """

    def __init__(self, base: str, root: str, settings: AdapterSettings, quirks: Quirks, *, lora: bool) -> None:
        self.base = base
        self.root = root
        self.lora = lora
        self.adapters: dict[str, Adapter] = {}
        self.loads = 0
        self.unloads = 0
        self.rejections = 0
        self._settings = settings
        self._quirks = quirks
        self._failures_left = dict(quirks.fail_loads)
        self._resident: OrderedDict[str, None] = OrderedDict()
        self._lock = asyncio.Lock()

    async def load(self, name: str, path: str, *, in_place: bool) -> Answer:
        """Read an adapter's files now, and serve them under `name`."""
        async with self._lock:
            if self._failures_left.get(name, 0) > 0:
                self._failures_left[name] -= 1
                return 503, "the engine is busy"
            if name in self.adapters and not in_place:
                return 400, f"the adapter {name!r} is loaded already"
            if name in self._quirks.reject:
                self.rejections += 1
                return 400, f"the adapter {name!r} was rejected as asked"
            try:
                adapter = await asyncio.to_thread(read_adapter, name, Path(path), self._settings.max_rank)
            except (OSError, ValueError) as error:
                self.rejections += 1
                return 400, f"cannot load {name!r} from {path}: {_words(error)}"
            self.adapters[name] = adapter
            self.loads += 1
            self._touch(name)
            return 200, f"adapter {name!r} is loaded"

    async def unload(self, name: str) -> Answer:
        """Forget an adapter."""
        async with self._lock:
            if name in self._quirks.keep:
                return 500, f"the adapter {name!r} is kept as asked"
            if self.adapters.pop(name, None) is None:
                return 404, f"the adapter {name!r} is not loaded"
            self._resident.pop(name, None)
            self.unloads += 1
            return 200, f"adapter {name!r} is unloaded"

    async def answering(self, model: str) -> tuple[Adapter | None, str]:
        """Return (adapter or None for the base, error); the error is empty when something answers."""
        if model == self.base:
            return None, ""
        async with self._lock:
            adapter = self.adapters.get(model)
            if adapter is None or model in self._quirks.never_list:
                return None, f"the model {model!r} does not exist"
            if model not in self._resident:
                try:
                    adapter = await asyncio.to_thread(read_adapter, model, Path(adapter.path), self._settings.max_rank)
                except (OSError, ValueError) as error:
                    return None, f"the adapter {model!r} is gone from memory and from disk: {_words(error)}"
                self.adapters[model] = adapter
            self._touch(model)
            return adapter, ""

    def listing(self, created: int) -> list[dict[str, Any]]:
        """Return the entries of /v1/models: the base first."""
        cards: list[dict[str, Any]] = [_card(self.base, self.root, None, created)]
        for name, adapter in self.adapters.items():
            if name not in self._quirks.never_list:
                cards.append(_card(name, adapter.path, self.base, created))
        return cards

    @property
    def resident(self) -> list[str]:
        """Names of the adapters in memory, the least recently used first."""
        return list(self._resident)

    def _touch(self, name: str) -> None:
        self._resident[name] = None
        self._resident.move_to_end(name)
        while len(self._resident) > self._settings.max_cpu_count:
            self._resident.popitem(last=False)


def _card(name: str, root: str, parent: str | None, created: int) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": created, "owned_by": "stand-in", "root": root, "parent": parent}


def _words(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{CONFIG_FILE} is not JSON"
    return f"{error.strerror}: {error.filename}" if isinstance(error, OSError) else str(error)


# --- static and dynamic ---------------------------------------------------------------------------------------------


class Watcher:
    """Keeps the engine equal to the directory, one `tick` at a time (dynamic mode)."""

    def __init__(self, engine: Engine, settings: AdapterSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._handled: dict[str, Signature] = {}  # what needs no further load call: loaded, or rejected for good
        self._loaded: set[str] = set()
        self._skipped: frozenset[tuple[str, str]] = frozenset()
        self.ticks = 0

    async def run(self) -> None:
        """Tick until cancelled; the first time at once."""
        while True:
            try:
                await self.tick()
            except OSError:
                log.exception("watcher: looking at %s failed", self._settings.source)
            await asyncio.sleep(self._settings.refresh_s)

    async def tick(self) -> None:
        """Load new or changed adapters, unload removed ones."""
        seen = await asyncio.to_thread(scan, self._settings.source, self._settings.max_rank)
        self._report(seen)
        found = {item.name: item for item in seen.found}
        for name in sorted(self._handled.keys() - found.keys()):
            await self._gone(name)
        for item in seen.found:
            if self._handled.get(item.name) != item.signature:
                await self._new_or_changed(item)
        self.ticks += 1

    async def _new_or_changed(self, item: Found) -> None:
        in_place = item.name in self._loaded
        status, words = await self._engine.load(item.name, str(item.path), in_place=in_place)
        if status >= 500:
            log.warning("load %s: %d %s (will be tried again)", item.name, status, words)
            return
        self._handled[item.name] = item.signature
        if status >= 400:
            log.error("load %s: %d %s (not tried again until its files change)", item.name, status, words)
            return
        self._loaded.add(item.name)
        log.info("load %s: %s%s", item.name, words, " in place" if in_place else "")

    async def _gone(self, name: str) -> None:
        if name in self._loaded:
            status, words = await self._engine.unload(name)
            if status >= 400 and status != 404:
                log.warning("unload %s: %d %s (will be tried again)", name, status, words)
                return
            log.info("unload %s: %s", name, words)
        self._loaded.discard(name)
        self._handled.pop(name, None)

    def _report(self, seen: Scan) -> None:
        """Log each skipped directory once, and again when it is skipped for another reason."""
        now = frozenset(seen.skipped)
        for name, reason in seen.skipped:
            if (name, reason) not in self._skipped:
                log.warning("skipping adapter directory %s: %s", name, reason)
        self._skipped = now


async def load_static(engine: Engine, seen: Scan) -> None:
    """Load what a scan at start found. Raises: StartRefusedError when one cannot be loaded: engines die of that."""
    for name, reason in seen.skipped:
        log.warning("skipping adapter directory %s: %s", name, reason)
    for item in seen.found:
        status, words = await engine.load(item.name, str(item.path), in_place=False)
        while status >= 500:
            status, words = await engine.load(item.name, str(item.path), in_place=False)
        if status >= 400:
            raise StartRefusedError(f"the engine failed at start: {words}")
        log.info("static adapter %s: %s", item.name, words)


# --- the server -----------------------------------------------------------------------------------------------------


class App:
    """HTTP routes over one engine."""

    def __init__(self, engine: Engine, *, runtime_updates: bool, facts: dict[str, Any]) -> None:
        self._engine = engine
        self._updates = runtime_updates
        self._facts = facts
        self._created = int(time.time())

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        route = (request.method, request.path.rstrip("/") or "/")
        if route in {("GET", "/health"), ("GET", "/v1/health/ready")}:
            return Response(200)
        if route == ("GET", "/v1/models"):
            return Response.of({"object": "list", "data": self._engine.listing(self._created)})
        if route == ("GET", "/stand-in"):
            return Response.of(self._state())
        if request.method != "POST":
            return _error(404, "not found")
        try:
            body = request.json()
        except ValueError:
            return _error(400, "the body is not JSON")
        if not isinstance(body, dict):
            return _error(400, "the body is not a JSON object")
        if route[1] in {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"} and self._updates:
            return await self._update(route[1], body)
        if route[1] in {"/v1/chat/completions", "/v1/completions"}:
            return await self._complete(body, chat="chat" in route[1])
        return _error(404, "not found")

    async def _update(self, route: str, body: dict[str, Any]) -> Response:
        name, path = body.get("lora_name"), body.get("lora_path")
        if not isinstance(name, str) or not name:
            return _error(400, "lora_name is missing")
        if route == "/v1/unload_lora_adapter":
            status, words = await self._engine.unload(name)
        elif not isinstance(path, str) or not path:
            status, words = 400, "lora_path is missing"
        else:
            status, words = await self._engine.load(name, path, in_place=body.get("load_inplace") is True)
        return Response(200, words.encode(), "text/plain") if status == 200 else _error(status, words)

    async def _complete(self, body: dict[str, Any], *, chat: bool) -> Response:
        model = body.get("model")
        if not isinstance(model, str):
            return _error(400, "model is missing")
        adapter, problem = await self._engine.answering(model)
        if problem:
            return _error(404, problem)
        source = {"adapter": adapter.name, "weightsSha256": adapter.weights_sha256} if adapter else {"adapter": None}
        text = f"{model} answers"
        if adapter:
            text += f" with adapter weights sha256:{adapter.weights_sha256}"
        content = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        return Response.of(
            {
                "id": "stand-in",
                "object": "chat.completion" if chat else "text_completion",
                "created": self._created,
                "model": model,
                "choices": [{"index": 0, "finish_reason": "stop", **content}],
                "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
                "standIn": {"base": self._engine.base, **source},
            }
        )

    def _state(self) -> dict[str, Any]:
        engine = self._engine
        return {
            **self._facts,
            "pid": os.getpid(),
            "loads": engine.loads,
            "unloads": engine.unloads,
            "rejections": engine.rejections,
            "lora": engine.lora,
            "resident": engine.resident,
            "adapters": {
                a.name: {"path": a.path, "rank": a.rank, "weightsSha256": a.weights_sha256}
                for a in engine.adapters.values()
            },
        }


def _error(status: int, words: str) -> Response:
    kind = {400: "BadRequestError", 404: "NotFoundError"}.get(status, "InternalServerError")
    return Response.of({"error": {"message": words, "type": kind, "param": None, "code": status}}, status)


def base_model(env: Mapping[str, str]) -> tuple[str, str]:
    """Return (served id, directory) of the base. Raises: StartRefusedError when its files do not exist."""
    model = env.get("AIM_MODEL_ID", "").strip()
    root = Path(env.get("AIM_CACHE_PATH", "").strip() or "/workspace/cache") / (model or ".")
    if model and not (root / "config.json").is_file():
        raise StartRefusedError(f"the base model is not in the cache: {root / 'config.json'} is missing")
    return model or env.get("AIM_ID", "").strip() or "base-model", str(root)


def count_start(env: Mapping[str, str]) -> int | None:
    """Count this start in the state directory; None without one. One file per pod, one line per start."""
    directory = env.get("AIM_STAND_IN_STATE", "").strip()
    if not directory:
        return None
    pod = env.get("POD_NAME") or env.get("HOSTNAME") or "server"
    path = Path(directory) / f"{pod.replace('/', '_')}.starts"
    with path.open("a+") as file:
        file.write(f"{datetime.now(UTC).isoformat()} {os.getpid()}\n")
        file.flush()
        file.seek(0)
        return sum(1 for _ in file)


def _crash_if_asked(env: Mapping[str, str], starts: int | None) -> None:
    text = env.get("AIM_STAND_IN_CRASH_AT_START", "").strip().lower()
    if text in {"true", "yes", "always"} or (text.isdigit() and (starts or 1) <= int(text)):
        raise StartRefusedError(f"crashing as asked (AIM_STAND_IN_CRASH_AT_START={text})")


def listen_address(env: Mapping[str, str]) -> tuple[str, int]:
    """Return (host, port): a pod's own loopback address, port 8000 unless configured."""
    host = env.get("AIM_DEV_POD_IP") or env.get("POD_IP") or "0.0.0.0"  # noqa: S104 (a pod listens on all its addresses)
    return host, int(env.get("AIM_PORT") or env.get("PORT") or 8000)


async def serve(env: Mapping[str, str]) -> None:
    """Run until SIGTERM or SIGINT. Raises: StartRefusedError, OSError when the address is taken."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    starts = count_start(env)
    _crash_if_asked(env, starts)
    settings, quirks = parse_adapter_settings(env), parse_quirks(env)
    base, root = base_model(env)
    feature = resolve_feature(env)
    if settings.source_is_set and not settings.source.is_dir():
        raise StartRefusedError(f"AIM_ADAPTER_SOURCE={settings.source}: no such directory")
    if env.get("AIM_STAND_IN_IGNORE_ADAPTERS", "").lower() in {"true", "1"}:
        feature = None
    dynamic = feature == "adapters" and settings.dynamic
    seen = scan(settings.source, settings.max_rank) if feature and not dynamic else Scan((), ())
    engine = Engine(base, root, settings, quirks, lora=dynamic or bool(seen.found))
    log.info(
        "base %s, feature %s, adapters %s, maximum rank %d",
        base, feature or "none", "dynamic" if dynamic else "static" if feature else "off", settings.max_rank,
    )  # fmt: skip
    await _pause(env, stop)
    await load_static(engine, seen)
    facts = {"startedAt": datetime.now(UTC).isoformat(), "starts": starts}
    server = Server(App(engine, runtime_updates=dynamic, facts=facts))
    host, port = listen_address(env)
    if not stop.is_set():
        port = await server.start(host, port)
        log.info("listening on %s:%d", host, port)
    watcher = asyncio.create_task(Watcher(engine, settings).run()) if dynamic else None
    await stop.wait()
    log.info("stopping")
    if watcher:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
    await server.close()


async def _pause(env: Mapping[str, str], stop: asyncio.Event) -> None:
    """Wait for the configured duration of a start, or until a stop is requested."""
    with contextlib.suppress(ValueError, TimeoutError):
        async with asyncio.timeout(float(env.get("AIM_STAND_IN_START_DELAY") or 0)):
            await stop.wait()


def main() -> int:
    """Run the server; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stdout, force=True)
    try:
        asyncio.run(serve(os.environ))
    except StartRefusedError as refused:
        log.error("%s", refused)
        return 1
    except OSError as error:
        log.error("cannot serve: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
