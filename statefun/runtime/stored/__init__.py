# SPDX-License-Identifier: Apache-2.0
"""Reads the state of addresses in a checkpoint, for other programs than the application."""
