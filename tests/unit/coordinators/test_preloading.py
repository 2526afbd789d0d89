"""torch's libraries are mapped before the import, so that the import does not stop a screen."""

import subprocess
import sys

LOOK = """
import sys
from fugu_cli.coordinators.torch_runtime import preload_torch
preload_torch()
maps = open("/proc/self/maps").read()
print("libtorch_python" in maps, "torch" in sys.modules)
import torch
preload_torch()
print(float((torch.ones(2) + 1).sum()))
"""


def test_the_libraries_are_there_before_the_import_and_torch_works_on_them() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n4.0\n"
