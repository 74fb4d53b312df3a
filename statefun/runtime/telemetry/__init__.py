# SPDX-License-Identifier: Apache-2.0
"""Sends what an application does to a collector of OpenTelemetry, over OTLP."""
