"""Many small passes: threads that spin between them would starve everything else on a busy
machine.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
