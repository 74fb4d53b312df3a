# SPDX-License-Identifier: Apache-2.0
"""Tables of SQLite as ingresses and egresses."""
