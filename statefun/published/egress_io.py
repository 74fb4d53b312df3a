# SPDX-License-Identifier: Apache-2.0
"""``statefun.egress_io`` of the published package."""

from __future__ import annotations

from statefun import kafka_egress_message, kinesis_egress_message
from statefun.published import moved

__all__ = ["kafka_egress_message", "kinesis_egress_message"]

moved(__name__)
