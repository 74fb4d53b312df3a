# SPDX-License-Identifier: Apache-2.0
"""Code that all commands share: their parser, completion in shells, and results as JSON."""
