# SPDX-License-Identifier: Apache-2.0
"""The form in which Spark compresses the changelogs of state stores: the block streams of lz4-java.

Based on ``LZ4CompressionCodec`` (``CompressionCodec.scala``) of Spark 4.2.0 and ``LZ4BlockOutputStream.java`` of
lz4-java 1.11. Each block begins with eight letters, the method, the sizes of the content before and after
its compression, and a checksum: 28 bits of the content's XXH32. An empty block ends the stream.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

_MAGIC = b"LZ4Block"
_HEAD = struct.Struct("<8sBiiI")
_METHOD = 0xF0
"""The bits of a block's token that name its method; the other bits are its largest size."""
_RAW, _LZ4 = 0x10, 0x20
_LARGEST = 1 << 25
_CHECKED_BITS = 0x0FFFFFFF
_SEED = 0x9747B28C
_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
_WORD = 0xFFFFFFFF
_STRIPE = 16


def decompressed(content: bytes) -> bytes:
    """Return the content that a block stream has, after its checksums are compared.

    Raises:
        ValueError: if the stream is damaged.
    """
    codec = pa.Codec("lz4_raw")
    blocks: list[bytes] = []
    checksums: list[int] = []
    position = 0
    while True:
        try:
            magic, token, packed, size, checksum = _HEAD.unpack_from(content, position)
        except struct.error:
            raise ValueError("its compressed content ends too early") from None
        position += _HEAD.size
        method = token & _METHOD
        if magic != _MAGIC or method not in {_RAW, _LZ4} or not 0 <= size <= _LARGEST:
            raise ValueError("its compressed content has a block with a malformed head")
        if size == 0:
            break
        block = content[position : position + packed]
        position += packed
        if packed <= 0 or position > len(content) or (method == _RAW and packed != size):
            raise ValueError("its compressed content has a block of a wrong size")
        if method == _LZ4:
            try:
                block = codec.decompress(block, size, asbytes=True)
            except (OSError, ValueError) as error:
                raise ValueError(f"its compressed content is damaged: {error}") from error
        blocks.append(block)
        checksums.append(checksum)
    if position != len(content):
        raise ValueError("its compressed content goes on after its end")
    if [value & _CHECKED_BITS for value in xxh32(blocks)] != checksums:
        raise ValueError("its content does not match its checksums")
    return b"".join(blocks)


def xxh32(blocks: Sequence[bytes]) -> list[int]:
    """Return the XXH32 of each block, with lz4-java's seed.

    Blocks of equal size are computed together, as most blocks of a stream have one size.

    >>> [hex(value) for value in xxh32([b"", b"Ada"])]
    ['0x8d3b42d8', '0x244f1599']
    """
    by_size: defaultdict[int, list[int]] = defaultdict(list)
    for index, block in enumerate(blocks):
        by_size[len(block)].append(index)
    results = [0] * len(blocks)
    for size, indices in by_size.items():
        starts = _accumulated([blocks[index] for index in indices], size)
        for index, start in zip(indices, starts, strict=True):
            results[index] = _finished(start, blocks[index])
    return results


def _accumulated(blocks: Sequence[bytes], size: int) -> list[int]:
    """Return what XXH32 computes from the whole stripes of 16 bytes of each block, all of one size."""
    first, second, *_, fifth = _PRIMES
    stripes = size // _STRIPE
    if not stripes:
        return [(_SEED + fifth) & _WORD] * len(blocks)
    whole = b"".join(block[: stripes * _STRIPE] for block in blocks)
    words = np.frombuffer(whole, "<u4").reshape(len(blocks), stripes, 4).transpose(1, 0, 2)
    addends = words * np.uint32(second)
    seeds = [_SEED + first + second, _SEED + second, _SEED, _SEED - first]
    lanes = np.tile(np.array([seed & _WORD for seed in seeds], np.uint32), (len(blocks), 1))
    shifted = np.empty_like(lanes)
    for addend in addends:
        lanes += addend
        np.left_shift(lanes, 13, out=shifted)
        np.right_shift(lanes, 19, out=lanes)
        lanes |= shifted
        lanes *= np.uint32(first)
    turns = (1, 7, 12, 18)
    return [
        sum(_rotated(int(lane), turn) for lane, turn in zip(row, turns, strict=True)) & _WORD
        for row in lanes
    ]


def _finished(start: int, block: bytes) -> int:
    """Return the XXH32 of a block, given the result of its whole stripes."""
    first, second, third, fourth, fifth = _PRIMES
    value = (start + len(block)) & _WORD
    rest = block[len(block) // _STRIPE * _STRIPE :]
    words = len(rest) // 4
    for word in struct.unpack_from(f"<{words}I", rest):
        value = _rotated((value + word * third) & _WORD, 17) * fourth & _WORD
    for byte in rest[words * 4 :]:
        value = _rotated((value + byte * fifth) & _WORD, 11) * first & _WORD
    value = (value ^ value >> 15) * second & _WORD
    value = (value ^ value >> 13) * third & _WORD
    return value ^ value >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _WORD
