# SPDX-License-Identifier: Apache-2.0
"""What a run reports: its progress, counts, metrics and failures, and why it has ended."""
