# SPDX-License-Identifier: Apache-2.0
"""``statefun.utils`` of the published package."""

from __future__ import annotations

from statefun import make_json_type, make_protobuf_type
from statefun.published import moved

__all__ = ["make_json_type", "make_protobuf_type"]

moved(__name__)
