# SPDX-License-Identifier: Apache-2.0
"""The form in which Spark compresses the changelogs of state stores: the block streams of lz4-java.

Based on ``LZ4CompressionCodec`` (``CompressionCodec.scala``) of Spark 4.2.0 and ``LZ4BlockOutputStream.java`` of
lz4-java 1.11. Each block begins with eight letters, the method, the sizes of the content before and after
its compression, and a checksum: 28 bits of the content's XXH32. An empty block ends the stream.
"""

from __future__ import annotations

import struct

import lz4.block
import xxhash

_MAGIC = b"LZ4Block"
_HEAD = struct.Struct("<8sBiiI")
_METHOD = 0xF0
"""The bits of a block's token that name its method; the other bits are its largest size."""
_RAW, _LZ4 = 0x10, 0x20
_LARGEST = 1 << 25
_CHECKED_BITS = 0x0FFFFFFF
_SEED = 0x9747B28C


def decompressed(content: bytes) -> bytes:
    """Return the content that a block stream has, after its checksums are compared.

    Raises:
        ValueError: if the stream is damaged.
    """
    blocks: list[bytes] = []
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
                block = lz4.block.decompress(block, uncompressed_size=size)
            except lz4.block.LZ4BlockError as error:
                raise ValueError(f"its compressed content is damaged: {error}") from error
        if xxhash.xxh32_intdigest(block, _SEED) & _CHECKED_BITS != checksum:
            raise ValueError("its content does not match its checksums")
        blocks.append(block)
    if position != len(content):
        raise ValueError("its compressed content goes on after its end")
    return b"".join(blocks)
