# SPDX-License-Identifier: Apache-2.0
"""Publishes records to the clusters of egresses: to Kafka, and through connectors."""
