# SPDX-License-Identifier: Apache-2.0
"""Clients of Kafka: connecting, credentials, topics."""
