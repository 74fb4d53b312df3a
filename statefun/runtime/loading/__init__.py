# SPDX-License-Identifier: Apache-2.0
"""Makes new checkpoints whose state comes from elsewhere: from DataFrames, or from the export of another checkpoint."""
