"""``${NAME}`` and ``${NAME:-default}`` in declarations: environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from tidegate.declarations.errors import UserError
from tidegate.declarations.units import UnreadableError, shown

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE_BODY = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:(:-)(.*))?", re.DOTALL)


def expand_variables(text: str) -> str:
    """Replace ``${NAME}`` and ``${NAME:-default}`` (also for an empty value, as a shell does).

    Raises:
        UnreadableError: a variable is not set and has no default, or is not written so.
    """
    check_variables(text)

    def value(match: re.Match[str]) -> str:
        name, has_default, default = _parts(match)
        present = os.environ.get(name)
        if has_default:
            return present or default
        if present is None:
            raise UnreadableError(f"the environment variable {name} is not set", f"{name} set, or ${{{name}:-default}}")
        return present

    return _VARIABLE.sub(value, text)


def check_variables(text: str) -> None:
    """UnreadableError if a variable is not written as ``expand_variables`` reads it; none is looked up."""
    for match in _VARIABLE.finditer(text):
        _parts(match)
    if "${" in _VARIABLE.sub("", text):
        raise UnreadableError(f"'${{' without '}}' in {shown(text)}", "${NAME} or ${NAME:-default}")


def _parts(match: re.Match[str]) -> tuple[str, bool, str]:
    body = _VARIABLE_BODY.fullmatch(match[1])
    if not body:
        raise UnreadableError(f"{shown(match[0])} is not an environment variable", "${NAME} or ${NAME:-default}")
    return body[1], body[2] is not None, body[3] or ""


def expanded(options: Mapping[str, str]) -> dict[str, str]:
    """Options with their variables looked up: for whoever reads the stream, at that moment and nowhere else.

    >>> expanded({"kafka.security.protocol": "${SECURITY:-SSL}"})
    {'kafka.security.protocol': 'SSL'}

    Raises:
        UserError: a variable is not set; the message names it and the option, never a value.
    """
    values: dict[str, str] = {}
    for name, text in options.items():
        try:
            values[name] = expand_variables(text)
        except UnreadableError as error:
            raise UserError(f"{name}: {error.message}; it is looked up where the stream is read") from None
    return values
