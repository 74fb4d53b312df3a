# SPDX-License-Identifier: Apache-2.0
"""Timers: the clock, the buckets that wait for it, and the log of those."""
