// Between the MLP's projections: silu(gate) * up, or max(x, 0) where nothing is gated.
//
//   up   [rows, (1 + gated) width] DTYPE: gates, then what they pass;  out [rows, width] DTYPE;  width a multiple of 8
//
// Grid (rows, pieces), 256 threads of 16 bytes each.
#include "machine.h"

constexpr int THREADS = 256, NUMBERS = 8;

DEVICE float number_of(const Vector& v, int i) { return unpack<DTYPE>(static_cast<u16>(v.word[i / 2] >> (i % 2 * 16))); }
DEVICE float silu(float x) { return x / (1.f + power_of_two(-1.44269504088896340736f * x)); }

KERNEL __launch_bounds__(THREADS)
activation(u16* out, const u16* up, int width, int gated) {
  const int at = (blockIdx.y * THREADS + threadIdx.x) * NUMBERS;
  if (at >= width) return;
  const i64 row = blockIdx.x;
  const u16* from = up + row * width * (1 + gated) + at;
  const Vector first = load_global(reinterpret_cast<const Vector*>(from));
  const Vector passed = gated ? load_global(reinterpret_cast<const Vector*>(from + width)) : first;
  Vector result;
#pragma unroll
  for (int i = 0; i < NUMBERS; i += 2) {
    const float a = number_of(first, i), b = number_of(first, i + 1);
    result.word[i / 2] = gated ? pack<DTYPE>(silu(a) * number_of(passed, i), silu(b) * number_of(passed, i + 1))
                               : pack<DTYPE>(fmaxf(a, 0.f), fmaxf(b, 0.f));
  }
  store_global(reinterpret_cast<Vector*>(out + row * width + at), result);
}
EXPORT(activation)
