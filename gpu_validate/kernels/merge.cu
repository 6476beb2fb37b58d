// The second pass of split-KV decode: the splits' partial softmax of each head as one.
//
//   out[s, h] = sum_i 2^(max_i - max) partials[s, h, i] / sum_i 2^(max_i - max) sum_i
//
// partials [batch, num_heads, splits, HEAD_DIM], partial_stats [batch, num_heads, splits] of (max in powers of two,
// sum), float32; out [batch, num_heads, HEAD_DIM] DTYPE. Grid (num_heads, batch), THREADS threads. A split that saw no
// token has a maximum of minus infinity and its partials are not read; a sequence of no token gives zeros.
// One thread a dimension, as neighbours read neighbours; a running maximum makes one pass of it, with no barrier.
#include "machine.h"

constexpr int THREADS = (HEAD_DIM + 31) / 32 * 32;  // whole warps

KERNEL __launch_bounds__(THREADS)
merge_splits(u16* out, const float* partials, const Pair* partial_stats, int splits, float v_scale) {
  if (threadIdx.x >= HEAD_DIM) return;
  const i64 head = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
  float max = MINUS_INFINITY, total = 0.f, value = 0.f;
#pragma unroll 4
  for (int split = 0; split < splits; ++split) {
    const Pair stat = load_global(partial_stats + head * splits + split);
    if (stat.first == MINUS_INFINITY) continue;
    const float partial = load_global(partials + (head * splits + split) * HEAD_DIM + threadIdx.x);
    const float highest = fmaxf(max, stat.first);
    const float shrink = power_of_two(max - highest), weight = power_of_two(stat.first - highest);
    value = value * shrink + partial * weight;
    total = total * shrink + stat.second * weight;
    max = highest;
  }
  value = total > 0.f ? value / total * v_scale : 0.f;
  store_global(out + head * HEAD_DIM + threadIdx.x, static_cast<u16>(pack<DTYPE>(value, 0.f)));
}
EXPORT(merge_splits)
