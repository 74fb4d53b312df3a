# SPDX-License-Identifier: Apache-2.0
"""The components that module files (such as ``module.yaml``) declare, and readers of every file format."""
