"""Time on the GPU: CUDA events around work that finds a cold L2 and a stream that never waits for the host.

Before each repeat a buffer larger than the L2 is read (not written: dirty lines would be written back at the work's
expense), so that keys, values and weights come from memory as they do in a server, whose step touches gigabytes between
two uses of the same byte. Work of many launches is put on the
stream behind a kernel that spins, so that the GPU finds all of it ready: what is timed then are kernels and the gaps
between them, as in a CUDA graph, and not Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_validate.cuda_device import CudaDevice

_SOURCE = """
extern "C" __global__ void spin(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}

extern "C" __global__ void sweep(const uint4* at, int count, unsigned* seen) {
  unsigned sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const uint4 v = at[i];
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *seen = sum;
}
"""
_LEAST_FLUSH_BYTES = 64 << 20
_HEAD_START = 1.5  # the spin lasts so many times as long as the host took to launch before


@dataclass(frozen=True)
class Timing:
    """Of repeats with a cold L2. ``low_us`` and ``high_us`` are the quartiles."""

    median_us: float
    low_us: float
    high_us: float
    repeats: int

    @property
    def spread(self) -> float:
        """Quartile distance as a share of the median."""
        return (self.high_us - self.low_us) / self.median_us if self.median_us else 0.0


def summary(times_us: list[float]) -> Timing:
    """Median and quartiles."""
    low, median, high = (float(x) for x in np.percentile(times_us, (25, 50, 75)))
    return Timing(median, low, high, len(times_us))


class Stopwatch:
    """Times work on one device. Holds the flush buffer: twice the L2, 64 MiB at least."""

    def __init__(self, device: CudaDevice, *, repeats: int = 15, warm_up: int = 3) -> None:
        self.device = device
        self.repeats, self.warm_up = repeats, warm_up
        size = max(_LEAST_FLUSH_BYTES, 2 * device.facts.l2_bytes)
        self._flush: Any = device.cupy.asarray(np.ones(size, dtype=np.uint8))
        self._seen: Any = device.cupy.asarray(np.zeros(1, dtype=np.uint32))
        module = device.cupy.RawModule(code=_SOURCE, options=(), backend="nvrtc")
        self._spin: Any = module.get_function("spin")
        self._sweep: Any = module.get_function("sweep")
        self._empty_us = 0.0
        self._empty_us = self.time(lambda: None, repeats=31).median_us

    def time(self, work: Callable[[], None], *, repeats: int | None = None) -> Timing:
        """Time of ``work``, which puts launches on the current stream and waits for nothing.

        What two events with nothing between them show is taken off.
        """
        for _ in range(self.warm_up):
            work()
        self.device.wait()
        start = time.perf_counter()
        work()
        host_ns = int(1e9 * (time.perf_counter() - start))
        self.device.wait()
        times = [self._once(work, host_ns) for _ in range(repeats or self.repeats)]
        return summary([max(0.0, once - self._empty_us) for once in times])

    def _once(self, work: Callable[[], None], host_ns: int) -> float:
        cuda = self.device.cupy.cuda
        begin, end = cuda.Event(), cuda.Event()
        self.flush()
        if host_ns > 20_000:  # below, the flush itself is head start enough
            self._spin((1, 1, 1), (1, 1, 1), (np.uint64(_HEAD_START * host_ns),))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return 1e3 * float(cuda.get_elapsed_time(begin, end))

    def flush(self) -> None:
        """Fills the L2 with bytes that nobody wants."""
        count = np.int32(self._flush.nbytes // 16)
        self._sweep((4 * self.device.facts.processors, 1, 1), (512, 1, 1), (self._flush, count, self._seen))

    def host_us(self, work: Callable[[], None], *, calls: int = 200) -> float:
        """Time that the host takes to launch ``work`` once, the stream's own time hidden where it is shorter."""
        work()
        self.device.wait()
        start = time.perf_counter()
        for _ in range(calls):
            work()
        spent = time.perf_counter() - start
        self.device.wait()
        return 1e6 * spent / calls
