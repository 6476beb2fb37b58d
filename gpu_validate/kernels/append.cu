// One new token of each sequence into the paged cache, through its block table.
//
//   k_new, v_new [batch, num_kv_heads, HEAD_DIM] DTYPE; pools, tables as in paged_decode.cu
//   positions    [batch] int32: the token's place in its sequence (= tokens stored before it); negative: skip the sequence
//
// Grid (batch), 128 threads; each carries 8 numbers at a time: one 16-byte vector, or 8 bytes of fp8.
// fp8: stored = nearest e4m3 of x / scale.
#include "machine.h"
#include "float8.h"

constexpr int PIECE = 8;  // numbers

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
