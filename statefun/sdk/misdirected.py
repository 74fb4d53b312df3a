# SPDX-License-Identifier: Apache-2.0
"""Finds messages whose values their target would decode as objects of another class."""

from __future__ import annotations

from statefun.sdk.alike import DEFINED_AGAIN, are_alike
from statefun.sdk.errors import DefinitionError
from statefun.sdk.fields import has_fields, short_text, text_of_annotation
from statefun.sdk.message import Message, type_of
from statefun.sdk.stateful_function import StatefulFunction
from statefun.sdk.structured import StructuredType


def check_class(message: Message, function: StatefulFunction) -> None:
    """Check that a function gets an object of the class that was sent, or of one with the same fields.

    Classes without a registered type have their plain name in common with classes of other modules.

    Args:
        message: the message.
        function: the target, if it is a function of the same program.

    Raises:
        DefinitionError: if it would get an object of another class, which may lack some of the fields.
    """
    sent = type_of(message)
    if not isinstance(sent, StructuredType) or not has_fields(sent.annotation):
        return
    taken = function.type_of(sent.typename)
    if (
        not isinstance(taken, StructuredType)
        or taken.typename != sent.typename
        or are_alike(taken.annotation, sent.annotation)
    ):
        return
    own, other = map(text_of_annotation, (sent.annotation, taken.annotation))
    line = f'make_json_type("{function.typename.namespace}/{sent.annotation.__name__}", {short_text(sent.annotation)})'
    cure = f"send the class that it takes, or give one of the two another typename: {line}"
    again = f"; {DEFINED_AGAIN}" if own == other else ""
    raise DefinitionError(
        f"a value of class {own} was sent to {message.target_typename}, which takes {'another ' if again else ''}{other}: both have "
        f"the typename {sent.typename}, so the value would be decoded as the other class; {cure}{again}"
    )
