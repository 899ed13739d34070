"""A Python process that finds this first has a machine whose clock is an hour ahead."""

import time

_HOUR = 3600
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + _HOUR
time.time_ns = lambda: _time_ns() + _HOUR * 1_000_000_000
