# SPDX-License-Identifier: Apache-2.0
"""Timers: the clock, the timer buckets, and the log of buckets."""
