"""Documents as people have them (PDF, DOCX, HTML) become text with headings, items and rows as Markdown writes them."""
