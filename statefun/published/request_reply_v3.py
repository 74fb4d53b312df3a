# SPDX-License-Identifier: Apache-2.0
"""``statefun.request_reply_v3`` of the published package."""

from __future__ import annotations

from statefun import RequestReplyHandler
from statefun.published import moved

__all__ = ["RequestReplyHandler"]

moved(__name__)
