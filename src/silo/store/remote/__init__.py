"""The remote store: results that travel between machines, over a file share, HTTP, object storage or Redis."""
