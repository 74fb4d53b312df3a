# SPDX-License-Identifier: Apache-2.0
"""Serves the playground: clients send messages to functions, and read records of topics, over HTTP."""
