import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
import numpy as np
from cpt_jax import memory

if sys.argv[1] == "keep":
    memory.keep_freed()
for turn in range(3):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(2**25)  # 256 MB: 65,536 pages
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(faults)
"""


def faults_of_the_third_time(mode: str) -> int:
    command = [sys.executable, "-c", SCRIPT, mode]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="mallopt is glibc's")
def test_freed_memory_is_kept():
    # Large pages, where the system has them, are 512 times fewer: 128 faults.
    assert faults_of_the_third_time("no") >= 100
    assert faults_of_the_third_time("keep") < 20
