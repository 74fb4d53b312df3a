# SPDX-License-Identifier: Apache-2.0
"""What a function sees and does while it runs."""

from __future__ import annotations

from statefun.sdk.address import Address
from statefun.sdk.egress import EgressMessage
from statefun.sdk.errors import DefinitionError
from statefun.sdk.message import Message
from statefun.sdk.storage import Storage


class Context:
    """Handed to a function with each message.

    Effects (messages, egress records and changed state) become visible together, when the
    micro-batch that the invocation is part of is committed.
    """

    __slots__ = ("address", "caller", "egress_messages", "messages", "storage")

    def __init__(self, address: Address, storage: Storage) -> None:
        self.address = address
        """Where this function instance lives."""
        self.caller: Address | None = None
        """Who sent the message; None if it came from an ingress."""
        self.storage = storage
        """The values of this address, as declared by the function's specs."""
        self.messages: list[Message] = []
        """What was sent to functions so far, in order."""
        self.egress_messages: list[EgressMessage] = []
        """What was sent to egresses so far, in order."""

    def send(self, message: Message | EgressMessage) -> None:
        """Send a message to a function, or a record to an egress.

        Raises:
            DefinitionError: if it is neither; a builder still needs its ``.build()``.
        """
        if isinstance(message, EgressMessage):
            self.egress_messages.append(message)
        elif isinstance(message, Message):
            self.messages.append(message)
        else:
            hint = "; call its .build()" if hasattr(message, "build") else ""
            raise DefinitionError(
                f"send takes a Message or an EgressMessage, not {type(message).__name__}{hint}"
            )

    def send_egress(self, message: EgressMessage) -> None:
        """Send a record to an egress; the same as :meth:`send`."""
        self.send(message)
