# SPDX-License-Identifier: Apache-2.0
"""Checks before the first micro-batch: of the checkpoint, and for functions that were removed."""
