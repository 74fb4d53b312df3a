# SPDX-License-Identifier: Apache-2.0
"""Commands that check applications before a start, handle dead letters, and list the outbox."""
