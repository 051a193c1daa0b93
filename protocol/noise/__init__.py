"""Exact noise: laws on the integers and how they are drawn without a float."""
