"""Private multi-armed bandits on Flower: the operator's tools and public API."""
