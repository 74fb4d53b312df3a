# SPDX-License-Identifier: Apache-2.0
"""Reads records from Kafka and connectors, and messages between functions from the outbox."""
