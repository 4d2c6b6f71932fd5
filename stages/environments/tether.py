"""Becomes another program that never outlives who started it: `python -I -S tether.py PARENT PROGRAM ARGUMENT...`.

The wish survives the exec. Where the system has no such wish, the program runs untethered.
"""

import ctypes
import os
import signal
import sys

if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
