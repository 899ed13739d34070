"""Converts documents (PDF, DOCX, HTML) to text with headings, items and rows in Markdown."""
