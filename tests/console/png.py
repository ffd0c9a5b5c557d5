"""Reduces screenshots to 256 colors, to make the files small. Pure; supports only the PNGs that Chromium writes."""

from __future__ import annotations

import struct
import zlib
from collections import Counter

_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def squeeze(png: bytes) -> bytes:
    """Return an 8-bit picture (RGB or RGBA, not interlaced) with a palette of its 256 most frequent colours."""
    width, height, channels, rows = _decode(png)
    pixels = [row[start : start + 3] for row in rows for start in range(0, width * channels, channels)]
    counted = Counter(pixels)
    palette = [colour for colour, _ in counted.most_common(256)]
    index = {colour: number for number, colour in enumerate(palette)}
    for colour in counted:
        if colour not in index:
            index[colour] = min(range(len(palette)), key=lambda number: _distance(palette[number], colour))
    numbers = bytes(index[pixel] for pixel in pixels)
    lines = b"".join(b"\0" + numbers[start : start + width] for start in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    body = zlib.compress(lines, 9)
    return (
        _SIGNATURE
        + _chunk(b"IHDR", head)
        + _chunk(b"PLTE", b"".join(palette))
        + _chunk(b"IDAT", body)
        + _chunk(b"IEND", b"")
    )


def _distance(one: bytes, other: bytes) -> int:
    return sum((left - right) ** 2 for left, right in zip(one, other, strict=True))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _decode(png: bytes) -> tuple[int, int, int, list[bytes]]:
    """Return width, height, bytes per pixel, and the rows. Source: PNG specification, section 9 (filters)."""
    assert png.startswith(_SIGNATURE), "no PNG"
    place, body, head = len(_SIGNATURE), b"", b""
    while place < len(png):
        (length,) = struct.unpack_from(">I", png, place)
        kind, data = png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        head = data if kind == b"IHDR" else head
        body += data if kind == b"IDAT" else b""
        place += length + 12
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    assert (depth, interlaced) == (8, 0), "not as Chromium writes them"
    channels = {2: 3, 6: 4}[colour]
    raw, stride = zlib.decompress(body), width * channels
    rows: list[bytes] = []
    before = bytes(stride)
    for number in range(height):
        start = number * (stride + 1)
        before = _unfilter(raw[start], bytearray(raw[start + 1 : start + 1 + stride]), before, channels)
        rows.append(before)
    return width, height, channels, rows


def _unfilter(kind: int, row: bytearray, above: bytes, channels: int) -> bytes:
    for place in range(len(row)):
        left = row[place - channels] if place >= channels else 0
        up = above[place]
        if kind == 1:
            row[place] = row[place] + left & 255
        elif kind == 2:
            row[place] = row[place] + up & 255
        elif kind == 3:
            row[place] = row[place] + (left + up) // 2 & 255
        elif kind == 4:
            corner = above[place - channels] if place >= channels else 0
            row[place] = row[place] + _paeth(left, up, corner) & 255
    return bytes(row)


def _paeth(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    return min((left, up, corner), key=lambda value: abs(guess - value))
