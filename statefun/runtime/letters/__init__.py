# SPDX-License-Identifier: Apache-2.0
"""Dead letters in their topic: read, shown, replayed and dropped."""
