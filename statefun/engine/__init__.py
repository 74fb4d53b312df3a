# SPDX-License-Identifier: Apache-2.0
"""The engine: messages and state of addresses in, effects out; without Spark, Arrow and Kafka."""
