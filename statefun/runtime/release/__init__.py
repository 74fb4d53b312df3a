# SPDX-License-Identifier: Apache-2.0
"""What happens after a commit: publishing, deleting, offsets of consumer groups, metrics."""
