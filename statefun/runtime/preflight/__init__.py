# SPDX-License-Identifier: Apache-2.0
"""Checks before the first micro-batch: recovery, removed functions."""
