"""Import every mechanism so that the registry is full."""

import wallflower.protocol.privacy.concentrated
import wallflower.protocol.privacy.local
import wallflower.protocol.privacy.pure
import wallflower.protocol.privacy.renyi
import wallflower.protocol.privacy.shuffled
import wallflower.protocol.privacy.trusted  # noqa: F401
