# SPDX-License-Identifier: Apache-2.0
"""What all commands have in common: their parser, completion in shells, and results as JSON."""
