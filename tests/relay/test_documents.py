"""Documents become text: headings, items, rows and code as the reader of facts knows them, and nothing else."""

from __future__ import annotations

import io
import zipfile

import docx
import pytest

from forestay.relay.documents import hypertext, pdf, word
from forestay.relay.documents.child import converted
from forestay.relay.documents.kinds import Unreadable, charset_of, document_kind

PAGE = """<!doctype html>
<html><head><title>Port of Aarhus</title><meta charset="latin-1"><style>p { color: red }</style>
<script>document.write("<p>never</p>")</script></head>
<body><nav><ul><li><a href="/">Home</a></li></ul></nav>
<h1>Basins</h1><p>The north basin is <b>9 m</b> deep.<br>It holds
twelve boats &amp; a crane.</p>
<h2>Fees</h2><table><tr><th>length</th><th>crowns</th></tr><tr><td>up to 8 m</td><td>120</td></tr></table>
<ul><li>Ring the <i>bell</i><li>Wait</ul>
<pre>port = 80
  host = "a"</pre>
<p>The end<p>is open"""


def pdf_of(*pages: str) -> bytes:
    """A PDF with one line of Helvetica for each line of its pages, written by the rules of its format."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * place} 0 R" for place in range(len(pages)))
    objects.append(f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for place, text in enumerate(pages):
        lines = " ".join(f"({line}) Tj 0 -16 Td" for line in text.split("\n"))
        stream = f"BT /F1 12 Tf 72 720 Td {lines} ET".encode()
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >> "
            + f"/Contents {5 + 2 * place} 0 R >>".encode()
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream")
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(out)}\n%%EOF\n"
    return out + head.encode() + end.encode()


def word_of() -> bytes:
    document = docx.Document()
    document.add_heading("Harbour rules", 0)
    document.add_heading("Fees", 2)
    document.add_paragraph("A berth costs 120 crowns.")
    document.add_paragraph("Ring the bell", style="List Bullet")
    table = document.add_table(rows=2, cols=2)
    for place, text in enumerate(("length", "crowns", "8 m", "120")):
        table.cell(place // 2, place % 2).text = text
    merged = document.add_table(rows=1, cols=2)
    merged.cell(0, 0).merge(merged.cell(0, 1)).text = "Closed in winter"
    inner = merged.cell(0, 0).add_table(rows=1, cols=1)
    inner.cell(0, 0).text = "from October"
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def test_a_page_is_what_a_reader_sees_of_it() -> None:
    assert hypertext.text_of(PAGE.encode()).split("\n\n") == [
        "# Port of Aarhus",
        "- Home",
        "# Basins",
        "The north basin is 9 m deep.\nIt holds twelve boats & a crane.",
        "## Fees",
        "| length | crowns |\n|---|\n| up to 8 m | 120 |",
        "- Ring the bell",
        "- Wait",
        '```\nport = 80\n  host = "a"\n```',
        "The end",
        "is open\n",
    ]


def test_tables_in_tables_and_tags_that_are_never_closed_lose_nothing() -> None:
    text = hypertext.text_of(b"<table><tr><td>one<table><tr><td>two</table>three<tr><td>four<p>five")
    assert text == "| one two three |\n|---|\n| four five |\n"
    assert hypertext.text_of(b"<p>one <![odd>two <![CDATA[three]]> four").split() == ["one", "two", "four"]
    assert hypertext.text_of(b"</table></li></pre></h1>still <li>here").split("\n\n") == ["still", "- here\n"]


def test_a_page_without_text_is_said_to_have_none() -> None:
    with pytest.raises(Unreadable, match="no text"):
        hypertext.text_of(b"<html><script>fill()</script></html>")


def test_a_pdf_is_read_page_by_page_and_cut_words_are_joined() -> None:
    text = pdf.text_of(pdf_of("The north basin is nine me-\nters deep.", "", "It holds twelve boats."))
    assert text == "# Page 1\n\nThe north basin is nine meters deep.\n\n# Page 3\n\nIt holds twelve boats.\n"


def test_a_pdf_without_text_and_a_damaged_one_say_so() -> None:
    with pytest.raises(Unreadable, match="pictures"):
        pdf.text_of(pdf_of(""))
    for cut in (9, 60, 200):
        with pytest.raises(Unreadable, match=r"damaged|no text"):
            pdf.text_of(pdf_of("Text.")[:cut])


def test_a_locked_pdf_says_so() -> None:
    from pypdf import PdfReader, PdfWriter

    writer, out = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf_of("Secret.")))), io.BytesIO()
    writer.encrypt("word", algorithm="AES-256")
    writer.write(out)
    with pytest.raises(Unreadable, match="password"):
        pdf.text_of(out.getvalue())


def test_a_word_document_keeps_its_order_its_headings_and_its_tables() -> None:
    assert word.text_of(word_of()).split("\n\n") == [
        "# Harbour rules",
        "## Fees",
        "A berth costs 120 crowns.",
        "- Ring the bell",
        "| length | crowns |\n|---|\n| 8 m | 120 |",
        "| Closed in winter from October |\n|---|\n",
    ]


def test_a_word_document_that_unpacks_to_too_much_is_not_unpacked() -> None:
    out = io.BytesIO(word_of())
    with zipfile.ZipFile(out, "a", zipfile.ZIP_DEFLATED) as package:
        package.writestr("word/more.xml", bytes(201_000_000))
    assert len(out.getvalue()) < 1_000_000
    with pytest.raises(Unreadable, match="unpacks to"):
        word.text_of(out.getvalue())
    with pytest.raises(Unreadable, match="damaged"):
        word.text_of(word_of()[:300])


def test_the_marks_of_a_file_say_what_it_is() -> None:
    assert document_kind(pdf_of("x"), "x.txt") == "pdf"
    assert document_kind(word_of(), "x") == "docx"
    assert document_kind(PAGE.encode(), "x.txt") == "html"
    assert document_kind(b"<p>One", "x.HTM") == "html"
    assert document_kind(b"# Notes on <html>", "notes.md") is None
    assert document_kind(b"PK\x03\x04 another package", "x.xlsx") is None
    assert charset_of(PAGE.encode()) == "latin-1"
    assert charset_of(b"<p>One") is None


def test_what_is_larger_than_its_bound_is_refused() -> None:
    assert "more than 20 characters" in converted("html", b"<p>" + b"word " * 10, 20).refused
