// One new token of each sequence into the paged cache, through its block table.
//
//   k_new, v_new [batch, num_kv_heads, HEAD_DIM] DTYPE; pools, tables as in paged_decode.cu
//   positions    [batch] int32: the token's place in its sequence (= tokens stored before it); negative: skip the sequence
//
// Grid (batch), 128 threads; each carries 8 numbers at a time: one 16-byte vector, or 8 bytes of fp8.
// fp8: stored = nearest e4m3 of x / scale, ties to even, at most 448 in size (as vLLM's cache kernels saturate).
#include "machine.h"

constexpr int PIECE = 8;  // numbers

DEVICE u8 float8_of(float x) {
  const u32 bits = bits_of(x), sign = bits >> 24 & 0x80;
  const u32 size = bits & 0x7fffffff;
  if (size > 0x7f800000) return static_cast<u8>(sign | 0x7f);  // not a number
  if (size >= 0x43e00000) return static_cast<u8>(sign | 0x7e);  // 448 and more
  const int exponent = static_cast<int>(size >> 23) - 127;
  if (exponent < -10) return static_cast<u8>(sign);  // below half the smallest, 2^-9
  // A step of the result is 2^(exponent - 3), 2^-9 below the normal range: that many bits of the fraction go.
  const int dropped = 20 + (exponent < -6 ? -6 - exponent : 0);
  const u32 fraction = (size & 0x7fffff) | 0x800000;
  u32 kept = fraction >> dropped;
  const u32 rest = fraction & ((1u << dropped) - 1), half = 1u << (dropped - 1);
  kept += rest > half || (rest == half && (kept & 1)) ? 1 : 0;
  // `kept` holds the leading bit in the normal range; a carry moves on into the exponent as it should.
  return static_cast<u8>(sign | (exponent < -6 ? kept : kept + (static_cast<u32>(exponent + 6) << 3)));
}

DEVICE void store_piece(u8* pool, i64 number, const u16* source, float scale) {
  const Vector piece = load_global(reinterpret_cast<const Vector*>(source));
  if (KV_DTYPE != FLOAT8) {
    store_global(reinterpret_cast<Vector*>(pool + number * 2), piece);
    return;
  }
  u32 words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < PIECE; ++i) {
    const u16 bits = static_cast<u16>(piece.word[i / 2] >> (i % 2 * 16));
    words[i / 4] |= static_cast<u32>(float8_of(unpack<DTYPE>(bits) / scale)) << (i % 4 * 8);
  }
  store_global(reinterpret_cast<u32*>(pool + number), words[0]);
  store_global(reinterpret_cast<u32*>(pool + number) + 1, words[1]);
}

KERNEL __launch_bounds__(128)
append(u8* k_pool, u8* v_pool, const u16* k_new, const u16* v_new, const int* tables, const int* positions,
       int row_blocks, int kv_heads, float k_scale, float v_scale) {
  const int sequence = blockIdx.x, numbers = kv_heads * HEAD_DIM;
  const int position = load_global(positions + sequence);
  if (position < 0) return;
  const int block = load_global(tables + static_cast<i64>(sequence) * row_blocks + position / BLOCK_SIZE);
  const i64 row = (static_cast<i64>(block) * BLOCK_SIZE + position % BLOCK_SIZE) * numbers;
  const i64 source = static_cast<i64>(sequence) * numbers;
  for (int i = threadIdx.x * PIECE; i < numbers; i += blockDim.x * PIECE) {
    store_piece(k_pool, row + i, k_new + source + i, k_scale);
    store_piece(v_pool, row + i, v_new + source + i, v_scale);
  }
}
EXPORT(append)
