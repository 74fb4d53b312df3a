# SPDX-License-Identifier: Apache-2.0
"""Publishes records to Kafka."""
