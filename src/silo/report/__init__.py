"""Reports: what trials say of a kernel, in figures and pictures. No I/O: pages are text."""
