# SPDX-License-Identifier: Apache-2.0
"""Checks the checkpoint before the first micro-batch, also for state and messages of removed functions."""
