# SPDX-License-Identifier: Apache-2.0
"""The Spark session, its jars and signals, and the modules that workers import."""
