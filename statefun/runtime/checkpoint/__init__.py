# SPDX-License-Identifier: Apache-2.0
"""The files of a checkpoint: its folder, its lock, Spark's logs, the outbox."""
