// The norm before attention and before the MLP, with the residual sum it always comes with.
//
//   residual += x;  out = residual / sqrt(mean(residual^2) + epsilon) * weight
//
//   x, residual, out  [rows, width] DTYPE;  weight [width] DTYPE;  width a multiple of 8
//
// Grid (rows), 256 threads, WARPS floats of dynamic shared memory. Rows are read 16 bytes a thread; the second pass
// finds the residual in L1, where the first has written it.
#include "machine.h"

constexpr int THREADS = 256, WARPS = THREADS / 32, NUMBERS = 8;

DEVICE float number_of(const Vector& v, int i) { return unpack<DTYPE>(static_cast<u16>(v.word[i / 2] >> (i % 2 * 16))); }

KERNEL __launch_bounds__(THREADS)
rms_norm(u16* out, u16* residual, const u16* x, const u16* weight, int width, float epsilon) {
  SHARED_MEMORY(shared);
  float* sums = reinterpret_cast<float*>(shared);
  const i64 row = static_cast<i64>(blockIdx.x) * width;
  float sum = 0.f;
  for (int at = threadIdx.x * NUMBERS; at < width; at += THREADS * NUMBERS) {
    Vector* place = reinterpret_cast<Vector*>(residual + row + at);
    const Vector old = load_global(place), added = load_global(reinterpret_cast<const Vector*>(x + row + at));
    Vector now;
#pragma unroll
    for (int i = 0; i < NUMBERS; i += 2) {
      now.word[i / 2] = pack<DTYPE>(number_of(old, i) + number_of(added, i), number_of(old, i + 1) + number_of(added, i + 1));
      sum += number_of(now, i) * number_of(now, i) + number_of(now, i + 1) * number_of(now, i + 1);
    }
    store_global(place, now);
  }
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) sum += from_lane_xor(sum, mask);
  if (threadIdx.x % 32 == 0) store_shared(sums + threadIdx.x / 32, sum);
  block_barrier();
  float total = 0.f;
#pragma unroll
  for (int warp = 0; warp < WARPS; ++warp) total += load_shared(sums + warp);
  const float factor = 1.f / sqrtf(total / width + epsilon);
  for (int at = threadIdx.x * NUMBERS; at < width; at += THREADS * NUMBERS) {
    const Vector now = load_global(reinterpret_cast<const Vector*>(residual + row + at));
    const Vector by = load_global(reinterpret_cast<const Vector*>(weight + at));
    Vector result;
#pragma unroll
    for (int i = 0; i < NUMBERS; i += 2)
      result.word[i / 2] = pack<DTYPE>(number_of(now, i) * factor * number_of(by, i), number_of(now, i + 1) * factor * number_of(by, i + 1));
    store_global(reinterpret_cast<Vector*>(out + row + at), result);
  }
}
EXPORT(rms_norm)
