# SPDX-License-Identifier: Apache-2.0
"""Stands in for ``statefun.request_reply_v3`` of apache-flink-statefun; importing it is deprecated."""

from __future__ import annotations

from statefun import RequestReplyHandler
from statefun.published import warn_of_move

__all__ = ["RequestReplyHandler"]

warn_of_move(__name__)
