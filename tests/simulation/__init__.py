# SPDX-License-Identifier: Apache-2.0
"""The runtime, simulated: its own code on a model of disk, clocks, Spark and brokers.

A seeded scheduler lets the driver crash between any two steps, cuts the power, loses, delays and
reorders requests and replies, lets drivers, their JVMs and tasks that are long replaced go on, sets
clocks forth and back, puts back older copies of the checkpoint, and lets another driver run on a
copy in the midst of anything. Calls leave their micro-batches; their reports come early, late, twice or
not at all, and their processes are lost. What functions do is different at every attempt. In the end,
what a read-committed reader sees and what functions have received has to be exactly what the committed
micro-batches say, in order; or, of an application that was refused, a part of what they say in one
of the checkpoint's histories.

``make simulate`` tries many seeds; ``ARGS="--seed 7"`` one of them, and with ``--sabotage`` without
one of the rules that protect.
"""
