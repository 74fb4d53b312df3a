# SPDX-License-Identifier: Apache-2.0
"""Calls functions with what arrived for their addresses, inside Spark's Python workers."""
