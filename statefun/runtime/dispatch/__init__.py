# SPDX-License-Identifier: Apache-2.0
"""Calls functions with the messages to their addresses, inside Spark's Python workers."""
