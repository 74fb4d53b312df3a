# SPDX-License-Identifier: Apache-2.0
"""Plans repairs: checks the changes of values that a person requests against the state of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from statefun.engine.address_keys import address_key
from statefun.inspect.state_listing import parsed_address, unknown_address
from statefun.protocol.runtime_pb2 import AddressState
from statefun.runtime.checkpoint.repair_log import Change
from statefun.runtime.stored.committed_state import CommittedState
from statefun.runtime.stored.known_values import KnownValues, nearest
from statefun.runtime.stored.typed_values import primitive_type
from statefun.runtime.stored.written_values import (
    ENCODINGS,
    RawValue,
    encoded_value,
    written_value,
)
from statefun.sdk.address import Address
from statefun.sdk.errors import ConfigurationError
from statefun.sdk.times import in_milliseconds

_KEYS = {"address", "set", "delete", "new"}


@attrs.frozen
class WrittenText:
    """A value as a person has written it on the command line: the type decides how it is read."""

    text: str


@attrs.frozen
class Request:
    """The changes of one address that a person requests."""

    address: str
    values: dict[str, Any] = attrs.field(factory=dict)
    """By name: a :class:`WrittenText`, a :class:`RawValue`, or what a JSON document can have."""
    deleted: Sequence[str] = ()
    """The names of values to delete."""
    deletes_all: bool = False
    """Whether to delete all values of the address."""
    is_new: bool = False
    """Whether the address may have no state yet."""


def requests_in(content: str, file: str) -> list[Request]:
    """Read the requests in a file of ``statefun state apply``.

    Args:
        content: a list in YAML or JSON; each item has the keys ``address``, ``set``, ``delete`` and ``new``.
        file: the name of the file, for errors.

    Raises:
        ConfigurationError: if the file has another form; the error quotes no values, which may be secret.
    """
    # It imports PyYAML, which is slow, and other commands do not need it.
    from statefun.module.yaml.plain_values import plain_value  # noqa: PLC0415 - see above

    items = plain_value(content, file)
    if not isinstance(items, list) or not items:
        raise ConfigurationError(
            f"file {file} must be a list of changes, such as - {{address: com.example/card/c1, set: {{balance: 5}}}}"
        )
    return [
        _request(item, f"change {number} in file {file}") for number, item in enumerate(items, 1)
    ]


def _request(item: Any, place: str) -> Request:
    if not isinstance(item, dict) or not isinstance(item.get("address"), str):
        raise ConfigurationError(f"{place} must have the key address, such as com.example/card/c1")
    unknown = [key for key in item if key not in _KEYS]
    if unknown:
        raise ConfigurationError(
            f"{place} has the unknown key {unknown[0]}{nearest(str(unknown[0]), sorted(_KEYS), 'keys')}"
        )
    values, deleted = item.get("set", {}), item.get("delete", [])
    deletes_all = deleted == "all"
    if deletes_all:
        deleted = []
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ConfigurationError(f"set of {place} must have names of values as its keys")
    if not isinstance(deleted, list) or not all(isinstance(name, str) for name in deleted):
        raise ConfigurationError(f"delete of {place} must be a list of names of values, or all")
    if not (values or deleted or deletes_all):
        raise ConfigurationError(f"{place} must have the key set, or the key delete")
    read = {name: _raw(value) for name, value in values.items()}
    return Request(item["address"], read, deleted, deletes_all, bool(item.get("new", False)))


def _raw(value: Any) -> Any:
    """Return bytes for a mapping such as ``{base64: AAEC}``, the form of bytes in ``statefun state --json``."""
    if isinstance(value, bytes):  # YAML's !!binary
        return RawValue(value)
    if isinstance(value, dict) and len(value) == 1:
        ((encoding, text),) = value.items()
        if encoding in ENCODINGS and isinstance(text, str):
            return RawValue.of(text, encoding)
    return value


def planned_changes(
    requests: Sequence[Request], state: CommittedState, known: KnownValues, now: int
) -> list[Change]:
    """Check requests against the committed state, and return the changes in order.

    Args:
        requests: the requests.
        state: the newest committed state.
        known: the types of values.
        now: the present time, in milliseconds since the epoch.

    Raises:
        ConfigurationError: if an address, a name or a value is not valid, or a value is changed twice.
    """
    changes: dict[tuple[bytes, str], Change] = {}
    for request in requests:
        for change in _Target.of(request, state, known, now).changes(request):
            key = change.target, change.name
            if key in changes:
                raise ConfigurationError(
                    f"value {change.name} of {request.address} is changed twice"
                )
            changes[key] = change
    return [*changes.values()]


@attrs.frozen
class _Target:
    """An address whose values are to be changed."""

    address: Address
    stored: Mapping[str, AddressState.Value]
    known: KnownValues
    now: int

    @classmethod
    def of(cls, request: Request, state: CommittedState, known: KnownValues, now: int) -> _Target:
        """Find the address that a requested repair is for.

        Raises:
            ConfigurationError: if the application has no such function, or the checkpoint has no state of the address.
        """
        address = parsed_address(request.address, known)
        content = state.get(address_key(address))
        if content is None:
            known.check(address.typename)
            if not request.is_new:
                way_out = (
                    " (to give a new address its first state, add --new, or new: true in a file)"
                    if request.values
                    else ""
                )
                raise ConfigurationError(f"{unknown_address(state, address, known)}{way_out}")
        values = AddressState.FromString(content or b"").values
        return cls(address, {value.name: value for value in values}, known, now)

    def changes(self, request: Request) -> Iterator[Change]:
        """Yield the changes that a request makes.

        Raises:
            ConfigurationError: if a name or a value is not valid.
        """
        present = {
            name: each for name, each in self.stored.items() if not 0 < each.expires <= self.now
        }
        for name, value in request.values.items():
            yield self._change(name, present.get(name), self._after(name, value))
            for former in self._former_names(name, present):
                yield self._change(former, present[former], None)
        for name in present if request.deletes_all else request.deleted:
            names = [each for each in (name, *self._former_names(name, present)) if each in present]
            if not names:
                hint = nearest(name, present, "its values")
                shown = self.known.present(self.address)
                raise ConfigurationError(f"{shown} has no value {name}{hint}")
            for each in names:
                yield self._change(each, present[each], None)

    def _change(
        self, name: str, before: AddressState.Value | None, after: AddressState.Value | None
    ) -> Change:
        return Change(
            address_key(self.address), name, before, after, self._is_secret(name, before, after)
        )

    def _is_secret(self, name: str, *values: AddressState.Value | None) -> bool:
        secrets = self.known.secrets(self.address.typename)
        return any(secrets.hides(name, value.typename) for value in values if value is not None)

    def _former_names(self, name: str, present: Mapping[str, AddressState.Value]) -> list[str]:
        """Return the former names under which a renamed value is still stored, as no function has written it since."""
        renamed = self.known.present_values(self.address.typename)
        return [former for former, new in renamed.items() if new == name and former in present]

    def _after(self, name: str, value: Any) -> AddressState.Value:
        """Encode a requested value in the form in which functions store it."""
        function, known, before = self.address.typename, self.known, self.stored.get(name)
        declared = known.types(function)
        if name not in declared and before is None:
            hint = nearest(name, sorted({*declared, *self.stored}), "its values")
            shown = known.present_name(function)
            raise ConfigurationError(f"function {shown} has no value {name}{hint}")
        type_ = declared.get(name) or primitive_type(before.typename if before else "")
        if type_ is not None:
            typename = type_.typename
        else:
            typename = before.typename if before else known.typename(function, name)
        try:
            read = written_value(value.text, type_) if isinstance(value, WrittenText) else value
            content = encoded_value(read, type_, typename)
        except ValueError as error:
            is_secret = known.secrets(function).hides(name, typename)
            why = f"it does not fit type {typename}, and is secret" if is_secret else error
            raise ConfigurationError(
                f"value {name} of {self.known.present(self.address)} cannot be set: {why}"
            ) from error
        expires = before.expires if before and before.expires > self.now else 0
        after = known.expires_after(function, name)
        if after and not expires:
            expires = self.now + in_milliseconds(after)
        return AddressState.Value(name=name, typename=typename, value=content, expires=expires)
