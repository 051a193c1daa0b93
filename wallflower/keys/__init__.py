"""The keys of a consortium."""
