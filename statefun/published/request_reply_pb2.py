# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.request_reply_pb2`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun.protocol.request_reply_pb2 import Address, FromFunction, ToFunction, TypedValue
from statefun.published import warn_of_move

__all__ = ["Address", "FromFunction", "ToFunction", "TypedValue"]

warn_of_move(__name__, "statefun.protocol.request_reply_pb2")
