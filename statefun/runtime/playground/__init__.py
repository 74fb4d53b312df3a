# SPDX-License-Identifier: Apache-2.0
"""Serves the playground: functions receive messages, and topics give records, over HTTP."""
