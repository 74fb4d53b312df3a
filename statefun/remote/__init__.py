# SPDX-License-Identifier: Apache-2.0
"""Functions that run elsewhere: the calling side of the request-reply protocol over HTTP."""
