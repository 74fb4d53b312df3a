# SPDX-License-Identifier: Apache-2.0
"""Module files: the components that they declare, and readers for every documented format."""

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
