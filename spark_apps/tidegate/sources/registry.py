"""The schema by which an Avro value was written: of a file, or by its number from a schema registry."""

from __future__ import annotations

import base64
import http.client
import json
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fastavro.schema import SchemaParseException, parse_schema

from tidegate.declarations.errors import UserError
from tidegate.declarations.models import KafkaSource, Stream
from tidegate.declarations.variables import expanded
from tidegate.store.places import Place, move

_MOST_BYTES = 16 << 20
_MOST_REFERENCES = 100


@dataclass
class Schemas:
    """The schemas of a registry, by their numbers; each is kept in a folder, so that it is asked for once.

    ``url``: the registry's, as it is declared: ``${NAME}`` in it is looked up when it is asked, a login in it goes into
    the request's head. ``folder``: for ``<number>.avsc``. ``timeout_s``: how long an answer may take; after that, or if
    the registry is away, it is asked ``tries`` times in all. Can be pickled, without what was looked up.
    """

    url: str
    folder: Place
    timeout_s: float = 10.0
    tries: int = 4
    pause_s: float = 0.5
    _parsed: dict[int, Any] = field(default_factory=dict, repr=False)

    def schema(self, number: int) -> Any:
        """The schema of that number, parsed. Cost: once a number and process a file, once a number a request.

        Raises:
            UserError: the registry is away, refuses, or has no such schema of Avro.
        """
        if number not in self._parsed:
            kept = self.folder / f"{number}.avsc"
            try:
                text = kept.read_text()
            except FileNotFoundError:
                text = self._fetched(number)
                self._keep(kept, text)
            self._parsed[number] = self._read(number, text)
        return self._parsed[number]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parsed": {}}

    def _keep(self, kept: Place, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / f".{uuid.uuid4().hex}.avsc"
        partial.write_text(text)
        move(partial, kept)

    def _read(self, number: int, text: str) -> Any:
        """A schema, and before it those that it refers to."""
        try:
            content = json.loads(text)
            references, main = [], content
            if isinstance(content, dict) and "references" in content and "type" not in content:
                references, main = content["references"], content["schema"]
            known: dict[str, Any] = {}
            for schema in references:
                parse_schema(schema, named_schemas=known)
            return parse_schema(main, named_schemas=known)
        except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            message = f"what {self._name} has as schema {number} is no schema of Avro: {error}"
            raise UserError(message) from None

    def _fetched(self, number: int) -> str:
        answer = self._asked(f"/schemas/ids/{number}", f"no schema {number}, which a record names")
        kind = answer.get("schemaType", "AVRO")
        if kind != "AVRO":
            raise UserError(f"schema {number} of {self._name} is of {kind}: format: avro does not read it")
        schemas: dict[tuple[str, int], Any] = {}
        try:
            self._add_references(answer, schemas)
            main = _schema_in(answer)
        except (ValueError, TypeError, KeyError) as error:
            message = f"what {self._name} has as schema {number} is no schema of Avro: {error}"
            raise UserError(message) from None
        return json.dumps({"references": list(schemas.values()), "schema": main}) if schemas else json.dumps(main)

    def _add_references(self, answer: Mapping[str, Any], schemas: dict[tuple[str, int], Any]) -> None:
        for reference in answer.get("references") or ():
            subject, version = str(reference["subject"]), int(reference["version"])
            if (subject, version) in schemas or len(schemas) == _MOST_REFERENCES:
                continue
            path = f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
            inner = self._asked(path, f"no version {version} of {subject}, which a schema refers to")
            self._add_references(inner, schemas)
            schemas[subject, version] = _schema_in(inner)

    def _asked(self, path: str, missing: str) -> Mapping[str, Any]:
        """What the registry says; ``missing``: what it has not, if it says so."""
        base, login = _address(self.url)
        request = urllib.request.Request(
            base + path, headers={"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        )
        if login:
            request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
        why = ""
        for tried in range(self.tries):
            if tried:
                threading.Event().wait(self.pause_s * 2 ** (tried - 1))
            try:
                with _OPENER.open(request, timeout=self.timeout_s) as response:
                    answer = json.loads(response.read(_MOST_BYTES))
                if isinstance(answer, dict) and "schema" in answer:
                    return answer
                raise UserError(f"{self._name} is no schema registry: it answers something else")
            except urllib.error.HTTPError as error:
                why = f"answers with status {error.code}"
                if error.code == 404:
                    raise UserError(f"{self._name} has {missing}") from None
                if error.code in (401, 403):
                    hint = "" if login else "; a login is written https://${USER}:${PASSWORD}@…"
                    raise UserError(f"{self._name} refuses: it {why}{hint}") from None
                if error.code < 500 and error.code != 429:
                    raise UserError(f"{self._name} {why}") from None
            except (OSError, http.client.HTTPException) as error:
                reason = getattr(error, "reason", None) or error
                why = f"cannot be reached: {getattr(reason, 'strerror', None) or reason or type(error).__name__}"
            except ValueError:
                raise UserError(f"{self._name} is no schema registry: it answers something else") from None
        raise UserError(f"{self._name} {why}; nothing was judged: run the interval again when it is there")

    @property
    def _name(self) -> str:
        return f"the schema registry {_address(self.url)[0]}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A login goes to nobody but the registry."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def _address(url: str) -> tuple[str, str]:
    """A registry's URL without a login, and the login, both with variables looked up."""
    match = re.fullmatch(r"(https?://)([^/]*)@(.*)", url)
    if match is None:
        whole = expanded({"registry": url})["registry"]
        match = re.fullmatch(r"(https?://)([^/]*)@(.*)", whole)
        if match is None:
            return whole.rstrip("/"), ""
        return (match[1] + match[3]).rstrip("/"), match[2]
    # Parts apart: a password may hold what has a meaning in a URL.
    values = expanded({"registry": match[1] + match[3], "login at the registry": match[2]})
    return values["registry"].rstrip("/"), values["login at the registry"]


def _schema_in(answer: Mapping[str, Any]) -> Any:
    return json.loads(answer["schema"])


def schemas_of(stream: Stream, folder: Place) -> Schemas | None:
    """The schemas of a stream's values; None if they have no registry. ``folder``: the pipeline's in the warehouse."""
    source = stream.source
    if not isinstance(source, KafkaSource) or source.registry is None:
        return None
    return Schemas(source.registry, folder / "_schemas" / stream.name)
