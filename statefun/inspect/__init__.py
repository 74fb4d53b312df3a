# SPDX-License-Identifier: Apache-2.0
"""The command line's checks of programs, module files, clusters, checkpoints and dead letters."""
