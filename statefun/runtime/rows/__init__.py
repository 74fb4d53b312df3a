# SPDX-License-Identifier: Apache-2.0
"""Rows and their encodings: messages, effects, origins of records."""
