# SPDX-License-Identifier: Apache-2.0
"""Public names for packages that add connectors: to read records of ingresses, and write to egresses."""

from __future__ import annotations

from statefun.engine.letters import PROBLEM_HEADER
from statefun.engine.sinks import EgressRecord
from statefun.runtime.checkpoint.checkpoint_files import FileFacts
from statefun.runtime.checkpoint.folder import Folder
from statefun.runtime.checkpoint.framing import read_framed, write_framed
from statefun.runtime.egress.connector_lanes import Writing
from statefun.runtime.egress.lane import Cluster, UncertainError, UndeliveredError
from statefun.runtime.egress.marker import Marker
from statefun.runtime.ingress.connector_source import RECORDS, RECORDS_ARROW, Reading
from statefun.runtime.spark_internals.driver_source import Offset, Source

__all__ = [
    "PROBLEM_HEADER",
    "RECORDS",
    "RECORDS_ARROW",
    "Cluster",
    "EgressRecord",
    "FileFacts",
    "Folder",
    "Marker",
    "Offset",
    "Reading",
    "Source",
    "UncertainError",
    "UndeliveredError",
    "Writing",
    "read_framed",
    "write_framed",
]
