# SPDX-License-Identifier: Apache-2.0
"""Connector for Amazon Kinesis: ingresses that read streams, and egresses that write to streams.

The package uses only :mod:`statefun.components`, as packages outside of statefun do.
"""
