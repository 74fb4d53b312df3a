# SPDX-License-Identifier: Apache-2.0
"""Types of values that are encoded in other formats than Protobuf and JSON."""
