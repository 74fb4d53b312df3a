# SPDX-License-Identifier: Apache-2.0
"""Module files: what they declare, and how to read them in every documented format."""
