"""Models over HTTP: an API, and a page on which to see them think."""
