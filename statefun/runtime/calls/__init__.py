# SPDX-License-Identifier: Apache-2.0
"""Calls that have left their micro-batches: workers report their results to the driver."""
