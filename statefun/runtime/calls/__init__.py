# SPDX-License-Identifier: Apache-2.0
"""Calls that go on after their micro-batch has ended: workers report the results to the driver."""
