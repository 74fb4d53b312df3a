# SPDX-License-Identifier: Apache-2.0
"""What the command line looks at: module files and programs, clusters, checkpoints, dead letters."""
