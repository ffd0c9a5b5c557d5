"""Reads the header of a safetensors file, which describes its tensors. Pure: it sees bytes, and never a file.

Total: every function returns for any bytes. Source: the safetensors format.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from api.reasons import Reason
from disk.findings import Finding, shown

SAFETENSORS = "adapter_model.safetensors"
LARGEST_HEADER = 24 * 1024 * 1024  # bytes; about 150 000 tensors, as of an adapter for all experts; bounds memory
_LARGEST_POSSIBLE_HEADER = 100_000_000  # bytes; the limit of the format
_MOST_DIMENSIONS = 16
FLOAT_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
_ELEMENT_BYTES = {
    **FLOAT_BYTES,
    **dict.fromkeys(("I64", "U64", "C64"), 8.0),
    **dict.fromkeys(("I32", "U32"), 4.0),
    **dict.fromkeys(("I16", "U16"), 2.0),
    **dict.fromkeys(("F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I8", "U8", "BOOL"), 1.0),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 0.75),
    "F4": 0.5,
}


class Tensor(NamedTuple):
    """One entry of a safetensors header."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "F32"
    begin: int = 0  # of its bytes within the file
    size: int = 0  # bytes


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Entry(msgspec.Struct, gc=False):
    """A tensor as the header describes it. All fields can be absent: `__metadata__` is not a tensor."""

    dtype: str = ""
    shape: tuple[_Count, ...] | None = None
    data_offsets: tuple[_Count, _Count] | None = None


class _Metadata(msgspec.Struct):
    metadata: dict[str, str] = msgspec.field(default_factory=dict, name="__metadata__")


_HEADER = msgspec.json.Decoder(dict[str, _Entry])
_RAW_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRY = msgspec.json.Decoder(_Entry)
_METADATA = msgspec.json.Decoder(_Metadata)


@dataclass(slots=True)
class Weights:
    """What was read of the weights file: its size, its first bytes, the whole header if it has one, its tail.

    `samples`: tensors with bytes that were read of them, empty where nothing but the header was read.
    """

    name: str
    size: int
    prefix: bytes
    header: bytes = b""  # of safetensors: the JSON, without the eight bytes before it
    tail: bytes = b""  # of a .bin
    samples: list[tuple[Tensor, bytes]] = field(default_factory=list)


def header_length(weights_prefix: bytes) -> int | None:
    """Return the length of the JSON after the first eight bytes of a safetensors file; None for another file."""
    if len(weights_prefix) < 9 or weights_prefix[8:9] != b"{":
        return None
    length: int = struct.unpack("<Q", weights_prefix[:8])[0]
    return length if length <= _LARGEST_POSSIBLE_HEADER else None


def read_header(weights: Weights) -> list[Tensor] | Finding:
    """Read a safetensors header and compare it with the size of the file."""
    name, size = weights.name, weights.size
    if size < 9:
        return Finding(Reason.ADAPTER_WEIGHTS_TRUNCATED, f"{name} has {size} bytes")
    if (length := header_length(weights.prefix)) is None:
        return Finding(
            Reason.ADAPTER_WEIGHTS_UNREADABLE, f"{name} is not a valid safetensors file ({guess(weights.prefix)})"
        )
    if LARGEST_HEADER < length < size:
        return Finding(
            Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the header of {name} has {length} bytes, {LARGEST_HEADER} are read"
        )
    if 8 + length > size or len(weights.header) < length:
        return Finding(
            Reason.ADAPTER_WEIGHTS_TRUNCATED, f"{name} has {size} bytes, its header alone needs {8 + length}"
        )
    entries = _read_entries(memoryview(weights.header)[:length])
    if entries is None:
        return Finding(Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the header of {name} is not a valid safetensors header")
    tensors: list[Tensor] = []
    spans: list[tuple[int, int]] = []
    while entries:
        key, entry = entries.popitem()  # from the end, so that memory is freed meanwhile
        if (span := _span_of(entry)) is None or entry.shape is None:
            return Finding(
                Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the header of {name} describes {shown(key)} incorrectly"
            )
        tensors.append(Tensor(key, entry.shape, entry.dtype, 8 + length + span[0], span[1] - span[0]))
        spans.append(span)
    tensors.reverse()
    spans.sort()
    return _judge_spans(spans, length, weights) or tensors


def _read_entries(header: memoryview) -> dict[str, _Entry] | None:
    """Return the tensors that a header describes, in its order; None when it is not a valid header."""
    try:
        _METADATA.decode(header)  # libraries read the file only if this is a map of strings
        try:
            entries = _HEADER.decode(header)
        except msgspec.ValidationError:  # perhaps only because the metadata also has a "shape"
            raw = _RAW_HEADER.decode(header)
            raw.pop("__metadata__", None)
            return {name: _ENTRY.decode(entry) for name, entry in raw.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    entries.pop("__metadata__", None)
    return entries


def _span_of(entry: _Entry) -> tuple[int, int] | None:
    """Return where the bytes of a tensor are, or None when its description is incomplete or inconsistent."""
    shape, offsets = entry.shape, entry.data_offsets
    if not entry.dtype or shape is None or offsets is None or len(shape) > _MOST_DIMENSIONS:
        return None
    size = offsets[1] - offsets[0]
    element = _ELEMENT_BYTES.get(entry.dtype)
    if size < 0 or (element is not None and math.prod(shape) * element != size):
        return None
    return offsets


def _judge_spans(spans: Sequence[tuple[int, int]], length: int, weights: Weights) -> Finding | None:
    """Check that the data has no gaps and no overlaps, and ends where the file ends."""
    position = 0
    for begin, end in spans:
        if begin != position:
            return Finding(Reason.ADAPTER_WEIGHTS_UNREADABLE, f"the data of {weights.name} has gaps or overlaps")
        position = end
    wanted = 8 + length + position
    if weights.size < wanted:
        return Finding(
            Reason.ADAPTER_WEIGHTS_TRUNCATED, f"{weights.name} has {weights.size} bytes, its header describes {wanted}"
        )
    if weights.size > wanted:
        return Finding(
            Reason.ADAPTER_WEIGHTS_UNREADABLE,
            f"{weights.name} has {weights.size - wanted} bytes more than its header describes",
        )
    return None


# -- words ----------------------------------------------------------------------------------------------------------


def guess(prefix: bytes) -> str:
    """Describe what a file looks like."""
    start = prefix.lstrip()[:64].lower()
    if start.startswith((b"<!doctype", b"<html")):
        return "it looks like an HTML page"
    if start.startswith(b"<?xml"):
        return "it looks like XML, perhaps an error response"
    if start.startswith(b"{"):
        return "it looks like JSON, perhaps an error response"
    if prefix.startswith(b"PK\x03\x04"):
        return "it looks like a zip file, perhaps a .bin with another name"
    return "unknown format"
