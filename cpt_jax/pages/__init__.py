"""Pages to read: HTML in one file that loads nothing, its figures, and the same as Markdown."""
