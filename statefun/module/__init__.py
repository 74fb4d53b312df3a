# SPDX-License-Identifier: Apache-2.0
"""Module files: the components that they declare, and readers for every documented format."""
