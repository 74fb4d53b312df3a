# SPDX-License-Identifier: Apache-2.0
"""Module files: what they declare, and how to read them in every documented format."""

from statefun.module.loader import load_module_files, parse_module
from statefun.module.model import (
    AutoOffsetReset,
    DeliverySemantic,
    FromDate,
    FromEarliest,
    FromGroupOffsets,
    FromLatest,
    FromSpecificOffsets,
    KafkaEgress,
    KafkaIngress,
    Location,
    Module,
    OnDataLoss,
    StartupPosition,
    TopicPartition,
    TopicRoute,
    Unsupported,
)

__all__ = [
    "AutoOffsetReset",
    "DeliverySemantic",
    "FromDate",
    "FromEarliest",
    "FromGroupOffsets",
    "FromLatest",
    "FromSpecificOffsets",
    "KafkaEgress",
    "KafkaIngress",
    "Location",
    "Module",
    "OnDataLoss",
    "StartupPosition",
    "TopicPartition",
    "TopicRoute",
    "Unsupported",
    "load_module_files",
    "parse_module",
]
