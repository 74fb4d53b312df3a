# SPDX-License-Identifier: Apache-2.0
"""The Spark session, its jars and signals, and what workers import."""
