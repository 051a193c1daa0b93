"""Who decides what is asked next: pure policies and their confidence."""
