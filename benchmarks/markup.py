"""A page from escaped pieces: text stays text, and only what these functions made is markup."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


Piece = str | Markup


def text(piece: Piece) -> Markup:
    """A piece as HTML: escaped unless it is markup."""
    return piece if isinstance(piece, Markup) else Markup(html.escape(piece))


def join(pieces: Iterable[Piece], separator: str = "") -> Markup:
    """Pieces one after the other."""
    return Markup(separator.join(text(piece) for piece in pieces))


def tag(name: str, *content: Piece, **attributes: str) -> Markup:
    """An element; `class_` stands for the attribute class."""
    given = "".join(f' {key.rstrip("_")}="{html.escape(value)}"' for key, value in attributes.items() if value)
    return Markup(f"<{name}{given}>{join(content)}</{name}>")


@dataclass(frozen=True)
class Cell:
    """A table cell with a style of its own."""

    content: Piece
    class_: str


def table(
    headings: Sequence[Piece], rows: Iterable[Sequence[Piece | Cell]], *, numeric: Sequence[int] = (), caption: Piece = ""
) -> Markup:
    """A table that scrolls sideways on a narrow screen; columns in `numeric` are aligned to the right."""

    def alignment(column: int) -> str:
        return "number" if column in numeric else ""

    def body_cell(column: int, cell: Piece | Cell) -> Markup:
        own, content = (cell.class_, cell.content) if isinstance(cell, Cell) else ("", cell)
        return tag("td", content, class_=f"{alignment(column)} {own}".strip())

    head = join(tag("th", heading, class_=alignment(column), scope="col") for column, heading in enumerate(headings))
    body = join((tag("tr", *(body_cell(column, cell) for column, cell in enumerate(row))) for row in rows), "\n")
    parts = [tag("caption", caption)] if caption else []
    whole = tag("table", *parts, tag("thead", tag("tr", head)), tag("tbody", body))
    return tag("div", whole, class_="scroll")


def figure(image: bytes, caption: Piece, description: str) -> Markup:
    """A PNG image inside the page, with a caption, and a description for those who do not see it."""
    source = "data:image/png;base64," + base64.b64encode(image).decode("ascii")
    picture = Markup(f'<img src="{source}" alt="{html.escape(description)}">')
    return tag("figure", picture, tag("figcaption", caption))


def percent(share: float, digits: int) -> str:
    """A share in percent, with a space that does not break."""
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"


def badge(status: str) -> Markup:
    """A status in a coloured box."""
    return tag("span", status, class_=f"badge {status}")
