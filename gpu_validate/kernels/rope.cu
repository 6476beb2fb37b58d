// After the query-key-value projection: positions into queries and keys, and each to where it is wanted.
//
//   qkv        [rows, heads + 2 kv_heads, HEAD_DIM] DTYPE: queries, keys, values
//   q, k, v    [rows, heads | kv_heads | kv_heads, HEAD_DIM] DTYPE
//   positions  [rows] int32;  turns [positions, HEAD_DIM / 2] of (cosine, sine) float32
//
// Halves of a head turn together (as in Llama): (a, b) = (x[i], x[i + HEAD_DIM / 2]) become (a cos - b sin, b cos + a sin).
// Grid (rows, heads + 2 kv_heads), whole warps for HEAD_DIM / 2 threads.
#include "machine.h"

constexpr int HALF = HEAD_DIM / 2;

KERNEL __launch_bounds__((HALF + 31) / 32 * 32)
rope(u16* q, u16* k, u16* v, const u16* qkv, const int* positions, const Pair* turns, int heads, int kv_heads) {
  if (threadIdx.x >= HALF) return;
  const int i = threadIdx.x, head = blockIdx.y;
  const i64 row = blockIdx.x;
  const u16* from = qkv + (row * (heads + 2 * kv_heads) + head) * HEAD_DIM;
  u16* to = head < heads              ? q + (row * heads + head) * HEAD_DIM
            : head < heads + kv_heads ? k + (row * kv_heads + head - heads) * HEAD_DIM
                                      : v + (row * kv_heads + head - heads - kv_heads) * HEAD_DIM;
  const float a = unpack<DTYPE>(load_global(from + i)), b = unpack<DTYPE>(load_global(from + i + HALF));
  Pair turn{1.f, 0.f};
  if (head < heads + kv_heads) turn = load_global(turns + static_cast<i64>(load_global(positions + row)) * HALF + i);
  const u32 both = pack<DTYPE>(a * turn.first - b * turn.second, b * turn.first + a * turn.second);
  store_global(to + i, static_cast<u16>(both));
  store_global(to + i + HALF, static_cast<u16>(both >> 16));
}
EXPORT(rope)
