# SPDX-License-Identifier: Apache-2.0
"""Generated from ``proto/`` by ``make protocol``."""
