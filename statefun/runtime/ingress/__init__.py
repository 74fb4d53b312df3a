# SPDX-License-Identifier: Apache-2.0
"""Reads records from Kafka, and messages between functions from the outbox."""
