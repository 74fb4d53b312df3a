# SPDX-License-Identifier: Apache-2.0
"""``statefun.storage`` of the published package."""

from __future__ import annotations

from statefun import ValueSpec
from statefun.published import moved
from statefun.sdk.stateful_function import StorageSpec

__all__ = ["StorageSpec", "ValueSpec"]

moved(__name__)
