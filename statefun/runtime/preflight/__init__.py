# SPDX-License-Identifier: Apache-2.0
"""Checks and prepares a checkpoint before the first micro-batch; finds state and messages of removed functions."""
