# SPDX-License-Identifier: Apache-2.0
"""What the command and a run print on a terminal: tables, and a line that renews itself."""
