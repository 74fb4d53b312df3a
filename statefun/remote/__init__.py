# SPDX-License-Identifier: Apache-2.0
"""Calls functions behind endpoints: the client's side of the request-reply protocol over HTTP."""
