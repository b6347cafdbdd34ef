"""Files of JSON and CSV whose records are mutated: octets change, members come twice, cells go, quotes stay open."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from random import Random
from typing import Any

import pyarrow as pa
from tests.attacks.odd import TEXTS
from tests.attacks.written import cell_of, good, odd_token, quoted, random_number, token_of

from tidegate.declarations.models import Stream

RECORDS = 100
OCTETS = [
    b"\0",
    b"\xff",
    b'"',
    b",",
    b"{",
    b"}",
    b" ",
    b"\r",
    b"\xc3",
    b"\\",
    b"\xe2\x80\xa8",
    b":",
    b";",
    b"\x81",
    b"\n",
]

EXTRAS = ["null", "1", "{}", "[[]]", '"x"', '{"a": 1, "a": 2}']
OBJECTS = [
    '{"b": 1.50, "a": [true, null, "\\u00e4\\n/\\/"]}',
    '[ 1e3 , -0, {"k": {}, "k": []} ]',
    "{}",
    "[]",
    '[["\\u001f", "\x7f", "\\ud83d\\ude00"]]',
]


@dataclass(frozen=True)
class Attack:
    """A file: its stream, its name and octets, and when it landed.

    ``broken``: it was cut off where no reader but the product's can tell.
    """

    stream: str
    name: str
    content: bytes
    broken: bool = False
    landed_us: int = 0


class Node(dict[str, Any]):
    """An object that is being written: name → token, `Node` or list."""


def text_file(chance: Random, stream: Stream, serial: int) -> Attack:
    """A file of records of text, packed or not, whole or damaged."""
    if stream.format == "csv":
        content = csv_content(chance, stream, serial)
    elif stream.format == "json":
        content = json_content(chance, stream, serial)
    else:
        content = lines_content(chance, stream, serial)
    if stream.id and stream.csv.encoding == "utf-8":
        content = chance.choice([content, content, content, b"\xef\xbb\xbf" + content])
    return packed(chance, stream.name, f"{serial}.{stream.format}", content)


def lines_content(chance: Random, stream: Stream, serial: int, count: int = RECORDS) -> bytes:
    """Lines of JSON."""
    ends = chance.choice([[b"\n"], [b"\n"], [b"\r\n"], [b"\n", b"\r\n"], [b"\r"], [b"\n", b"\r"]])
    lines = [json_line(chance, stream, serial + i) for i in range(count)]
    if chance.randrange(3) == 0:  # whole blocks are good, so they are read as a whole
        lines[1:1] = [rendered(chance, tree_of(chance, stream, serial + count, 0), 0).encode()] * 60
    content = b"".join(line + chance.choice(ends) for line in lines)
    return chance.choice([content, content, content.rstrip(b"\r\n")])


def mutated(chance: Random, line: bytes) -> bytes:
    """Mostly as it is; else octets are changed, lost or put in, or two lines become one."""
    at = chance.randrange(len(line) + 1)
    octet = chance.choice(OCTETS)
    how = chance.choice([*["as it is"] * 40, "twice", "cut", "put", "change", "swap", "blank", "nul"])
    other = chance.randrange(len(line) + 1)
    return {
        "as it is": line,
        "twice": line + chance.choice([b"", b" ", b",", b"\x0b"]) + line,
        "cut": line[:at],
        "put": line[:at] + octet + line[at:],
        "change": line[:at] + octet + line[at + 1 :],
        "swap": line[: min(at, other)] + line[max(at, other) :],
        "blank": chance.choice([b"", b" ", b"\t", b"\r", b"\x0b"]),
        "nul": b"\0" * chance.randrange(1, 40),
    }[how]


# JSON


def tree_of(chance: Random, stream: Stream, serial: int, odd: int) -> Node:
    """A record as objects and lists of tokens, each value where its column reads it; ``odd`` of the tokens are odd."""
    values, top = good(chance, serial), Node()
    odd_names = chance.choices([c.name for c in stream.columns], k=odd)
    for column in stream.columns:
        token = odd_token(chance) if column.name in odd_names else token_of(chance, column, values[column.name])
        if column.name == "kind" and chance.randrange(12) == 0:
            token = chance.choice(OBJECTS)
        if chance.randrange(40):
            _place(top, list(column.steps), token)
    return top


def _place(node: Any, steps: list[Any], token: str) -> None:
    """Put a token where steps lead; what is missing on the way is made."""
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        node.extend(["null"] * (step + 1 - len(node)))
        present = node[step] if node[step] != "null" else None
    else:
        present = node.get(step)
    if not rest:
        node[step] = token
        return
    kind = list if isinstance(rest[0], int) else Node
    if not isinstance(present, kind):
        present = kind()
        node[step] = present
    _place(present, rest, token)


def rendered(chance: Random, node: Any, faults: int = 1) -> str:
    """A tree as JSON text; with ``faults``, names come twice, containers are something else, members are strange."""
    if isinstance(node, str):
        return node
    if faults and chance.randrange(120) == 0:
        return chance.choice(["null", "7", '"text"', "[]", "[1, 2]", '{"other": 1}', "true"])
    if isinstance(node, list):
        return "[" + chance.choice([",", ", "]).join(rendered(chance, item, faults) for item in node) + "]"
    colon = chance.choice([":", ": ", " : "])
    members = [
        f"{json.dumps(name, ensure_ascii=False)}{colon}{rendered(chance, v, faults)}" for name, v in node.items()
    ]
    if faults and chance.randrange(15) == 0:
        extra = chance.choice(["colour", "ID", "_file", "", "ä b"])
        members.append(f"{json.dumps(extra)}:{chance.choice(EXTRAS)}")
    if not faults or chance.randrange(2):
        chance.shuffle(members)
    if faults and members and chance.randrange(40) == 0:
        members.append(chance.choice(members))
    return "{" + chance.choice([",", ", "]).join(members) + "}"


def json_line(chance: Random, stream: Stream, serial: int) -> bytes:
    """A line of JSON, some members of which are none, or odd, or another record's."""
    tree = tree_of(chance, stream, serial, chance.choice([0, 0, 0, 1, 1, 2]))
    return mutated(chance, rendered(chance, tree).encode(errors="surrogatepass"))


def json_content(chance: Random, stream: Stream, serial: int, count: int = RECORDS) -> bytes:
    """Documents on any lines: one by one, printed over many lines, or in lists; whole, or cut off."""
    texts = []
    for number in range(count):
        text = rendered(chance, tree_of(chance, stream, serial + number, chance.choice([0, 0, 0, 1, 2])))
        if not _closes(text) or chance.randrange(40) == 0:
            text = chance.choice(["null", "7", '"a ] b"', "[]", "[{}]", "{}", '{"a": 01}', '{"a" 1}', "tru"])
        texts.append(_printed(chance, text))
    between = chance.choice(["\n", " ", "\r\n\r\n", "\t\n"])
    if chance.random() < 0.4:
        lists = [f"[{(',' + between).join(texts[at : at + 30])}]" for at in range(0, count, 30)]
        content = between.join(lists if chance.random() < 0.5 else [f"[{(',' + between).join(texts)}]", "[]"])
    else:
        # A list that stands by itself would be taken for one of records.
        content = between.join(f"[{text}]" if text.startswith("[") else text for text in texts)
    octets = content.encode(errors="surrogatepass")
    if chance.randrange(12) == 0:
        octets = octets[: octets.rindex(b"}")]
    return octets


def _closes(text: str) -> bool:
    """Whether brackets and strings of a text close, and only those that were opened."""
    level, inside, at = 0, False, 0
    while at < len(text):
        sign = text[at]
        if inside:
            at += sign == "\\"
            inside = sign != '"'
        else:
            inside = sign == '"'
            level += (sign in "{[") - (sign in "}]")
            if level < 0 or (level == 0 and at + 1 < len(text)):
                return False
        at += 1
    return level == 0 and not inside and "\ud800" not in text


def _printed(chance: Random, text: str) -> str:
    """A document over several lines, where the standard library can print it so without changing a number."""
    if chance.random() < 0.5 or not text.startswith("{"):
        return text
    return (
        text.replace(", ", ",\n  ") if '"' not in text.replace('\\"', "") or chance.random() < 0.3 else "{\n" + text[1:]
    )


# CSV


def csv_content(chance: Random, stream: Stream, serial: int, count: int = RECORDS) -> bytes:
    """A file of CSV by the stream's dialect."""
    dialect = stream.csv
    names = [str(column.steps[0]) if dialect.header else column.name for column in stream.columns]
    order = sorted(range(len(names)), key=lambda i: 0 if dialect.header else stream.columns[i].steps[0])
    if dialect.header and chance.randrange(4) == 0:
        chance.shuffle(order)
    header = [names[i] for i in order]
    if dialect.header and chance.randrange(8) == 0:
        header[chance.randrange(len(header))] = chance.choice(["ID", "_corrupt", "`a`", "", "id", " n ", "ä"])
    if dialect.header and stream.other_columns == "ignore" and chance.randrange(4) == 0:
        header.append(chance.choice(["colour", "extra one"]))
    lines = [csv_line(chance, stream, serial + i, order, len(header)) for i in range(count)]
    if dialect.header:
        # Of the header's octets few mistakes are clear ones: what becomes of them is tried by examples.
        lines.insert(
            0, dialect.delimiter.join(quoted(chance, f" {name}" if name == "n" else name, dialect) for name in header)
        )
    if chance.randrange(3) == 0:
        lines[1:1] = [unmutated_line(chance, stream, serial + count, order, len(header))] * 60
    if not dialect.header:
        lines.insert(0, unmutated_line(chance, stream, serial + count + 1, order, len(header)))
    first, rest = lines[0], lines[1:]
    if dialect.comment:
        rest.insert(chance.randrange(len(rest)), dialect.comment + 'a comment, with "quotes')
    ends = chance.choice([["\n"], ["\n"], ["\r\n"], ["\n", "\r\n"]])
    if dialect.encoding.startswith("utf-16"):
        return "".join(line + chance.choice(ends) for line in (first, *rest)).encode(dialect.encoding, "replace")
    begin = first.encode(dialect.encoding, "replace")
    if dialect.header and chance.randrange(30) == 0:
        begin = begin[:3] + b"\0" + begin[3:]
    if dialect.comment and chance.randrange(3) == 0:
        begin = b"#1\n\n" + begin
    octets = [begin, *(mutated(chance, line.encode(dialect.encoding, "replace")) for line in rest)]
    return b"".join(line + chance.choice(ends).encode() for line in octets)


def unmutated_line(chance: Random, stream: Stream, serial: int, order: list[int], width: int) -> str:
    """A line without a fault."""
    values = good(chance, serial)
    cells = [cell_of(chance, stream.columns[i], values[stream.columns[i].name], stream.csv) for i in order]
    cells += ["more"] * (width - len(order))
    return stream.csv.delimiter.join(quoted(chance, cell, stream.csv) for cell in cells)


def csv_line(chance: Random, stream: Stream, serial: int, order: list[int], width: int) -> str:
    """A line of CSV, some cells of which are odd."""
    values, dialect = good(chance, serial), stream.csv
    cells = [cell_of(chance, stream.columns[i], values[stream.columns[i].name], dialect) for i in order]
    cells += [chance.choice(["more", None]) for _ in range(width - len(order))]
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2])):
        cells[chance.randrange(len(cells))] = chance.choice([chance.choice(TEXTS), random_number(chance)])
    shown = [quoted(chance, cell, dialect) for cell in cells]
    if chance.randrange(40) == 0:  # an odd quote, or a cell too few or too many
        at = chance.randrange(len(shown))
        shown[at : at + 1] = chance.choice([[], ["a", "b"], [dialect.quote + shown[at]], [shown[at] + dialect.quote]])
    return dialect.delimiter.join(shown)


# Packing


def packed(chance: Random, stream: str, name: str, content: bytes) -> Attack:
    """Often as it is, else compressed, and then perhaps damaged."""
    how = chance.choice(
        [*["plain"] * 6, "gz", "gz", "gz damaged", "zst", "zst cut", "gz unnamed", "zst unnamed", "bz2"]
    )
    if how == "plain":
        return Attack(stream, name, content)
    if how == "bz2":
        return Attack(stream, name, b"BZh91AY&SY" + content[:10])
    if how.startswith("zst"):
        whole = pa.compress(content, "zstd", asbytes=True)
        cut = whole[: chance.randrange(5, len(whole))]
        suffix = "" if how == "zst unnamed" else ".zst"
        return Attack(stream, name + suffix, cut if how == "zst cut" else whole, how == "zst cut")
    half = content.find(b"\n", len(content) // 2) + 1
    whole = gzip.compress(content[:half], mtime=0) + gzip.compress(content[half:], mtime=0)
    if how == "gz damaged":
        at = chance.randrange(2, len(whole))
        whole = chance.choice([whole[:at], whole[:at] + bytes([chance.randrange(256)]) + whole[at + 1 :], whole + b"x"])
    return Attack(stream, name + ("" if how == "gz unnamed" else ".gz"), whole)
