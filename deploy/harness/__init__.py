"""Several hosts on one machine: real processes, own addresses, faults on purpose."""
