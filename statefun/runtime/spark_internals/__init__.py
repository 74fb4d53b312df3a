# SPDX-License-Identifier: Apache-2.0
"""Everything that depends on what Spark does not promise, in one place.

Each module is about one part of Spark, and says where each detail comes from. No other module
names these details; ``tests/runtime/spark_internals/`` has a test for each of them.
"""
