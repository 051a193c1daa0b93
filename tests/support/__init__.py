"""What tests of several folders are made of."""
