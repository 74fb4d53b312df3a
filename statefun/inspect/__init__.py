# SPDX-License-Identifier: Apache-2.0
"""Commands that check programs, module files, clusters and checkpoints, and handle dead letters."""
