"""Compares the modules of an adapter with those of its base, by names and shapes, as the engine does. Pure.

The engine refuses an adapter with a module name that the class of the base does not have. It loads a LoRA of a wrong
layer or prefix without any effect. It maps names that transformers renamed. It does not compare all shapes: a matrix
that is too narrow is served with wrong results.

Source: docs/contract.md, Preflight; the name mappers of vLLM's classes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from api.reasons import Reason
from disk.findings import Finding, shown
from disk.header import FLOAT_BYTES, Tensor
from disk.lora import half_of, is_of_parameters, module_path

Shape = tuple[int, ...]
BaseModules = Mapping[str, Shape | None]
"""Module path of a base → the shape of its weight, None where it is not known (quantized, fused experts)."""

_VISION = ("visual", "vision_tower", "vision_model", "multi_modal_projector", "language_model", "audio_tower")
_RENAMED = (  # both spellings of each part are mapped to one
    ("model.language_model.", "text."),
    ("language_model.model.", "text."),
    ("language_model.lm_head", "lm_head"),
    ("model.visual.", "visual."),
    ("model.vision_tower.", "vision_tower."),
    ("model.multi_modal_projector.", "multi_modal_projector."),
    ("model.audio_tower.", "audio_tower."),
)
_OUTERMOST = frozenset({"transformer", "model"})
_ALWAYS_LORA = frozenset({"embed_tokens", "lm_head"})


def base_modules(tensors: Iterable[Tensor]) -> dict[str, Shape | None]:
    """Return the modules of a base from its tensors (`….q_proj.weight` → `….q_proj`)."""
    modules: dict[str, Shape | None] = {}
    for tensor in tensors:
        path, _, what = tensor.name.rpartition(".")
        if not path:
            continue
        if what == "weight" and tensor.dtype in FLOAT_BYTES:
            modules[path] = tensor.shape
        else:
            modules.setdefault(path, None)
    return modules


def judge_fit(
    tensors: Sequence[Tensor], base: BaseModules, targeted: Collection[str]
) -> tuple[Finding | None, Finding | None]:
    """Return what refuses the adapter for this base, and what deserves a warning.

    Args: `targeted` are the modules whose parameters are trained as such (fused experts).
    """
    names = _Names(base)
    paths = sorted({path for tensor in tensors if (path := module_path(tensor.name)) is not None})
    foreign = [path for path in paths if not names.has_class_of(path)]
    if foreign:
        detail = f"the base has no module called {shown(foreign[0].rpartition('.')[2])} (of {shown(foreign[0])})"
        return Finding(Reason.ADAPTER_MODULE_UNKNOWN, detail), None
    found = {path: names.find(path) for path in paths}
    unknown = [path for path in paths if found[path] is None]
    if unknown:
        example = f"{shown(unknown[0])} is not in the base, which has {shown(min(base))}"
        if len(unknown) == len(paths):
            detail = f"none of its {len(paths)} modules is in the base: {example}"
            return Finding(Reason.ADAPTER_FITS_NO_MODULE, detail), None
    for tensor in tensors:
        path = module_path(tensor.name)
        module = found.get(path) if path is not None else None
        shape = base.get(module) if module is not None else None
        if path is None or shape is None or is_of_parameters(path, targeted):
            continue
        if (misfit := _misfit(tensor, shape)) is not None:
            return Finding(Reason.ADAPTER_SHAPE_MISMATCH, misfit), None
    if not unknown:
        return None, None
    detail = f"{len(unknown)} of its {len(paths)} modules are not in the base: {example}"
    return None, Finding(Reason.ADAPTER_FITS_PARTLY, detail)


def _misfit(tensor: Tensor, base: Shape) -> str | None:
    """Return how a matrix differs from the weight of its module; embeddings and GPT-2 store it transposed."""
    if len(base) != 2 or len(tensor.shape) != 2:
        return None
    at = 1 if half_of(tensor.name) == "A" else 0
    size = tensor.shape[at]
    wanted = (base[1], base[0]) if at == 1 else (base[0], base[1])
    transposed = "lora_embedding_" in tensor.name or ".c_" in tensor.name
    if size == wanted[transposed]:
        return None
    what = "columns" if at == 1 else "rows"
    return f"{shown(tensor.name)} has {size} {what}, its module in the base needs {wanted[transposed]}"


class _Names:
    """The modules of a base under every name that the engine knows for them."""

    def __init__(self, base: BaseModules) -> None:
        self._base = base
        firsts = {part for path in base for part in path.split(".", 2)[:2]}
        self._has_outermost = not _OUTERMOST.isdisjoint(path.partition(".")[0] for path in base)
        self._renames = not firsts.isdisjoint(_VISION)
        self._text_in_model = self._renames and "language_model" not in firsts
        self._known: dict[str, str] = {}  # what the engine calls it → the path in the base's files
        for path in base:
            self._known.setdefault(self._engine_name(path), path)
            if ".experts." in path:  # a LoRA of fused experts names their common parent
                parent = path[: path.index(".experts.") + len(".experts")]
                self._known.setdefault(self._engine_name(parent), parent)
        self._classes = {path.rpartition(".")[2] for path, shape in base.items() if shape is None or len(shape) > 1}

    def has_class_of(self, path: str) -> bool:
        """Return whether some module of the base has the last name of a path; experts are judged by their path."""
        plain = path.removesuffix(".base_layer")
        name = plain.rpartition(".")[2]
        return ".experts" in plain or name in self._classes or name in _ALWAYS_LORA

    def find(self, path: str) -> str | None:
        """Return the module of the base that the LoRA of a path acts on, None: it has no effect."""
        name = self._engine_name(path.removesuffix(".base_layer"))
        if (found := self._known.get(name)) is not None:
            return found
        outer, _, inner = name.partition(".")
        # Some bases are saved without their outermost module (GPT-2: "h.0…" for "transformer.h.0…"); transformers
        # adds it on loading.
        if outer in _OUTERMOST and inner in self._known and not self._has_outermost:
            return self._known[inner]
        if name == "lm_head":  # tied to the embedding, so that the files do not have it
            return next((path for path in self._base if path.endswith("embed_tokens")), None)
        if ".experts." in name:  # one expert of a base with fused experts
            fused = name[: name.index(".experts.") + len(".experts")]
            return fused if fused in self._base else None
        return None

    def _engine_name(self, path: str) -> str:
        if not self._renames:
            return path
        for spelling, name in _RENAMED:
            if path.startswith(spelling):
                return name + path[len(spelling) :]
        if self._text_in_model and path.startswith("model."):  # the files of Qwen-VL
            return "text." + path[len("model.") :]
        return path
