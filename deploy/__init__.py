"""Many machines: pins, images, manifests, units, and the laboratory that runs them."""
