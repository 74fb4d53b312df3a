# SPDX-License-Identifier: Apache-2.0
"""All code that depends on details that Spark does not promise.

Each module is about one part of Spark, and says where in Spark's source each detail comes from. No other
package knows these details; ``tests/runtime/spark_internals/`` has a test for each of them.
"""
