"""The thin Flower app of Wallflower: two names and a version, no logic.

Flower ships this folder to every node. The code that runs there is the node's own
installation; one of another version is refused here, by name.
"""

from wallflower.version import require_version

require_version("0.1.0")
