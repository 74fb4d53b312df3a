# SPDX-License-Identifier: Apache-2.0
"""The state of addresses in a checkpoint, as other programs than the application read it."""
