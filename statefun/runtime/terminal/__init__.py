# SPDX-License-Identifier: Apache-2.0
"""Prints on a terminal for the command and for a run: tables, and a status line that is rewritten."""
