import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from cpt_jax import memory

mode = sys.argv[1]
if mode != "no":
    memory.keep_freed()
assert memory.keeps_freed() == (mode != "no")
if mode == "short":
    memory.available = lambda: 0
for turn in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**25)  # 256 MB: 65,536 pages
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    memory.hand_back_if_short()
print(faults)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
@pytest.mark.parametrize("mode", ["no", "keep", "short"])
def test_freed_memory_is_kept_while_there_is_enough(mode):
    command = [sys.executable, "-c", SCRIPT, mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    # Large pages, where the system has them, are 512 times fewer: 128 faults.
    assert (int(done.stdout) < 20) == (mode == "keep")
