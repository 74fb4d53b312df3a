# SPDX-License-Identifier: Apache-2.0
"""Event time by definition: a model in plain Python of watermark, windows and joins, and random programs that compare it.

A program has records of several streams, out of order, in partitions that become idle, whose messages go in circles,
wait for timers and long calls, and come to windows, joins and a table. The test kit runs it with crashes, and notes what
is delivered in each micro-batch. From that alone the model knows each watermark, which records are late, and what
windows and joins must hold.

``make event-time`` tries many programs; ``ARGS="--seed 7"`` one of them, and with ``--sabotage`` without a rule.
"""
