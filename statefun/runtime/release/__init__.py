# SPDX-License-Identifier: Apache-2.0
"""The steps after a commit: publishing, deleting, consumer-group offsets."""
