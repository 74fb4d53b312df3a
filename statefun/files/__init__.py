# SPDX-License-Identifier: Apache-2.0
"""Connector for files: ingresses that read the files of folders, and egresses that write files.

The package uses only :mod:`statefun.components`, as packages outside of statefun do.
"""
