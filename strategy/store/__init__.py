"""What a run keeps on disk, and what it tells while it works."""
