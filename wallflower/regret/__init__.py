"""The exact fast simulator, and the user-by-user one that checks it."""
