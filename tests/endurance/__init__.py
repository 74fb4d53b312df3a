# SPDX-License-Identifier: Apache-2.0
"""An application that runs for a year, in as many micro-batches as a day or an hour allows.

Everything is in use: timers and their cancellations, expiring values, dead letters, Kafka, Kinesis,
files, the playground, and an endpoint that comes and goes. Two addresses send a message back and
forth, so that each micro-batch causes the next one. Meanwhile, heaps, threads, file descriptors, and
the files of the checkpoint are sampled; each has to stay flat.

``make endurance`` runs 200,000 micro-batches on Spark; ``ARGS="--batches=20000"`` fewer;
``ARGS=--parts`` the parts of the driver alone, without Spark, in a few minutes.
"""
