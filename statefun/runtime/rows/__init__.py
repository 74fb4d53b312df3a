# SPDX-License-Identifier: Apache-2.0
"""The rows that travel: messages, effects, dead letters, and where a record came from."""
