# SPDX-License-Identifier: Apache-2.0
"""Reads, shows, replays and drops the dead letters in their topic."""
