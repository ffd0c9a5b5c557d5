"""Looks for NaN and infinity in a sample of the weights. Pure: it plans what to read, and judges what was read.

One such value makes the engine answer nonsense, also to requests for other adapters. The header does not show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from disk.header import FLOAT_BYTES, Tensor

WHOLE_BYTES = 4 * 1024 * 1024  # weights up to this size are read as a whole
_PART = 100  # of larger ones, one part in this number is read
_PIECE = 4096  # bytes
_SMALLEST_PIECE = 64  # bytes


class Piece(NamedTuple):
    """Bytes of a tensor to read: where they begin in the file, and how many."""

    tensor: Tensor
    begin: int
    size: int


def plan_sample(tensors: Sequence[Tensor]) -> Iterator[Piece]:
    """Return the pieces to read: all of small weights, else 1 % of the bytes, spread evenly over every tensor."""
    floats = [tensor for tensor in tensors if tensor.dtype in FLOAT_BYTES and tensor.size]
    total = sum(tensor.size for tensor in floats)
    if total <= WHOLE_BYTES:
        yield from (Piece(tensor, tensor.begin, tensor.size) for tensor in floats)
        return
    budget = max(WHOLE_BYTES, total // _PART)
    piece = max(_SMALLEST_PIECE, min(_PIECE, budget // len(floats) // 8 * 8))
    for tensor in floats[: budget // piece]:
        count = max(1, tensor.size * budget // total // piece)
        if tensor.size <= piece:
            yield Piece(tensor, tensor.begin, tensor.size)
            continue
        step = (tensor.size - piece) // max(1, count - 1) if count > 1 else 0
        for number in range(count):
            yield Piece(tensor, tensor.begin + number * step // 8 * 8, piece)


def first_not_finite(samples: Iterable[tuple[Tensor, bytes]]) -> Tensor | None:
    """Return the first tensor with NaN or infinity in the bytes that were read of it."""
    return next((tensor for tensor, data in samples if _has_special(tensor.dtype, data)), None)


def _has_special(dtype: str, data: bytes) -> bool:
    """Return whether little-endian floating-point numbers include one whose exponent is all ones (IEEE 754)."""
    width = FLOAT_BYTES[dtype]
    high = data[width - 1 :: width]
    if dtype == "F8_E4M3":  # no infinity; NaN is the one value with all bits set
        return b"\x7f" in high or b"\xff" in high
    if dtype in ("F16", "F8_E5M2"):  # five bits of exponent: the high byte shows them
        return not _IN_F16.isdisjoint(high)
    if b"\x7f" not in high and b"\xff" not in high:
        return False
    mask = 0xF0 if dtype == "F64" else 0x80
    next_bytes = data[width - 2 :: width]
    return any(byte & 0x7F == 0x7F and low & mask == mask for byte, low in zip(high, next_bytes, strict=False))


_IN_F16 = frozenset((*range(0x7C, 0x80), *range(0xFC, 0x100)))
