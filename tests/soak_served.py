# SPDX-License-Identifier: Apache-2.0
"""The function of a soak that is elsewhere: it puts the number of each entry into its token."""

from __future__ import annotations

import os
import uuid

from soak_functions import SPECS, TEXT, audit, count

from statefun import Context, Message, function

_PREFIX = os.environ["SOAK_PREFIX"]


@function("away/ledger", specs=SPECS)
def enter(ctx: Context, message: Message) -> None:
    """Count an entry, or answer an audit."""
    text = message.as_type(TEXT)
    if text == "audit":
        audit(ctx, _PREFIX, ctx.address.id)
    else:
        count(ctx, _PREFIX, ctx.address.id, f"{text.split()[0]} {uuid.uuid4().hex}")
