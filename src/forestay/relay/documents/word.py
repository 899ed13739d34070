"""Reads the text of a Word document: headings, paragraphs, items and tables, in their order."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

import docx
from docx.document import Document
from docx.opc.exceptions import OpcError
from docx.table import Table, _Cell
from docx.text.paragraph import Paragraph

from forestay.relay.documents.kinds import Unreadable
from forestay.relay.documents.markdown import heading, item, rows

_UNPACKED = 200_000_000  # bytes that a document may unpack to
_DEPTH = 8  # tables in cells of tables


def text_of(content: bytes) -> str:
    """Return the body of the document, without notes, comments, page headers and footers."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as package:
            size = sum(entry.file_size for entry in package.infolist())
        if size > _UNPACKED:
            raise Unreadable(f"unpacks to {size:,} bytes, more than {_UNPACKED:,}", "Split it.")
        blocks = list(_blocks(docx.Document(io.BytesIO(content))))
    except (zipfile.BadZipFile, OpcError, SyntaxError, KeyError, ValueError, AttributeError) as error:
        raise Unreadable(f"is a damaged DOCX ({type(error).__name__})", "Save it again in Word.") from error
    if not blocks:
        raise Unreadable("holds no text", "Write a text into it.")
    return "\n\n".join(blocks) + "\n"


def _blocks(document: Document) -> Iterator[str]:
    for part in document.iter_inner_content():
        if isinstance(part, Table):
            if table := rows([_cell_text(cell, 0) for cell in row] for row in _cells(part)):
                yield table
        elif text := part.text.strip():
            yield _block(part, text)


def _block(paragraph: Paragraph, text: str) -> str:
    style = (paragraph.style.name if paragraph.style is not None else None) or ""
    if style == "Title":
        return heading(1, text)
    if style.startswith("Heading ") and style[8:].isdigit():
        return heading(int(style[8:]), text)
    properties = paragraph._p.pPr
    if style.startswith("List") or (properties is not None and properties.numPr is not None):
        return item(text)
    return text


def _cells(table: Table) -> Iterator[list[_Cell]]:
    for row in table.rows:
        cells: list[_Cell] = []
        for cell in row.cells:
            if not cells or cells[-1]._tc is not cell._tc:  # a merged cell counts once
                cells.append(cell)
        yield cells


def _cell_text(cell: _Cell, depth: int) -> str:
    """Return the text of a cell and of the tables in it."""
    found: list[str] = []
    for part in cell.iter_inner_content():
        if isinstance(part, Paragraph):
            found.append(part.text)
        elif depth < _DEPTH:
            found += [_cell_text(inner, depth + 1) for row in _cells(part) for inner in row]
    return " ".join(found)
