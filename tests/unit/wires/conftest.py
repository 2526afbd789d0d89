"""Lets the tests of this folder share the modules beside them (conversations, validate) and those of
the providers (histories, servers).
"""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "providers")]
