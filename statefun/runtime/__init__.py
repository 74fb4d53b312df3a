# SPDX-License-Identifier: Apache-2.0
"""Runs stateful functions as one Spark Structured Streaming query."""
