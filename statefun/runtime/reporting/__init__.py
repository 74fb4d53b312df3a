# SPDX-License-Identifier: Apache-2.0
"""Reports of a run: its progress, counts, metrics and failures, and why it has ended."""
