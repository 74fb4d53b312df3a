# SPDX-License-Identifier: Apache-2.0
"""The steps after a batch's commit: publish records, commit consumer groups' offsets, delete the batch."""
