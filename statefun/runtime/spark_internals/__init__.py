# SPDX-License-Identifier: Apache-2.0
"""All code that depends on details that Spark does not promise.

Each module covers one part of Spark, and names the source of each detail. No other module
knows these details; ``tests/runtime/spark_internals/`` has a test for each of them.
"""
