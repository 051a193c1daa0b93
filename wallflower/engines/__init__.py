"""The engines that carry an experiment."""
