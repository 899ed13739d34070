"""Reads the text of a PDF, page by page."""

from __future__ import annotations

import io
import re

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from forestay.relay.documents.kinds import Unreadable

# The cut in a word at the end of a line. Before a capital or a digit, the hyphen belongs to the word and stays.
_CUT = re.compile(r"(?<=[a-zà-öø-ÿ])[-\u00ad]\n(?=[a-zà-öø-ÿ])")


def text_of(content: bytes) -> str:
    """Return each page under a heading with its number, so that a fact names its page."""
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("is locked with a password", "Save it without a password.")
        pages = [_CUT.sub("", page.extract_text()).strip() for page in reader.pages]
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Unreadable(f"is a damaged PDF ({type(error).__name__})", "Print it to a new PDF.") from error
    if not any(pages):
        raise Unreadable("holds no text, only pictures of it", "Run text recognition (OCR) over it first.")
    return "\n\n".join(f"# Page {number}\n\n{page}" for number, page in enumerate(pages, start=1) if page) + "\n"
