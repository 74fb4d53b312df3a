# SPDX-License-Identifier: Apache-2.0
"""Serving functions over HTTP to a runtime that calls them remotely."""
