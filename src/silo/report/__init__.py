"""Reports: summaries of a kernel's trials as figures, charts and pages of HTML.

No I/O: the pages are returned as text.
"""
