# SPDX-License-Identifier: Apache-2.0
"""Rows and effects, and their encodings as Spark columns and Arrow streams."""
