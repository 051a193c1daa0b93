"""The pictures of docs/results.md."""
