"""Reports: summaries of a kernel's trials, in figures and pictures. No I/O: pages are text."""
