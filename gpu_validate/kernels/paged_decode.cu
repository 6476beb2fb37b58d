// Decode attention over a KV cache in blocks: one query token a sequence, keys and values through a block table.
//
//   out[s, h] = sum_i softmax_i(scale q[s, h] . k_i) v_i      over the tokens i that sequence s may see
//
// Layout, all row-major:
//   q, out                 [batch, num_heads, HEAD_DIM]                        DTYPE
//   k_pool, v_pool         [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM]    KV_DTYPE; PAGED=0: [batch, row_blocks, ...]
//   tables                 [batch, row_blocks] int32: physical block of each logical one; entries past the end unread
//   lengths                [batch] int32: tokens stored, the query's own among them; 0 gives zeros
//   partials, partial_stats  [batch, num_heads, splits, HEAD_DIM] and [..., splits] of (max in powers of two, sum), float32
// Head h reads KV head h / GROUP. Grid (num_kv_heads, batch, splits), THREADS threads, SHARED_BYTES of dynamic shared
// memory. With one split the kernel writes out; with more it writes partials, and merge.cu finishes.
//
// Why it is built so. A decode step reads each key and value once and computes little on it: the time is that of reading.
//   * One thread block serves all query heads of a KV head: 8 of them are the columns of one tensor-core product
//     (keys 16 x dim times queries dim x 8), so that arithmetic costs a tenth of what reading does, at any group size.
//     Keys are the left factor and the output stays transposed (dim x heads): half the registers of the usual form,
//     and the running maxima lie in the lanes that need them.
//   * Each warp (team) runs through tiles of 16 tokens of its own with its own softmax. Its lanes meet at warp barriers
//     only; the warps meet once, at the end. Groups too large for a warp's registers are cut among the warps of one team,
//     which share the tile.
//   * Tiles wait in shared memory, filled by asynchronous copies one to two tiles ahead: 70 KiB a thread block, three
//     blocks an SM, more than twice what an H200's latency times its bandwidth asks for.
//   * A tile finds its rows through the table whatever the block size; the table's entry is read a tile ahead.
//   * Probabilities in bfloat16 keep 8 bits: they are multiplied as a rounded part and the rest, as if in 16 bits.
// fp8 keys and values become halves in registers, exactly. As 16-bit matrix loads hand out neighbouring bytes, the
// columns of keys and the rows of the output are permuted then; queries and results follow (KEY_..., OUT_... below).
#include "machine.h"
#include "decode_tiles.h"

// The running softmax of a warp's heads. A lane holds heads 2t and 2t + 1 of each column tile, t = lane % 4.
struct Softmax {
  float max[WARP_TILES][2];            // in powers of two, the same in the 8 lanes of a head
  float sum[WARP_TILES][2];            // this lane's tokens only
  float out[WARP_TILES][STEPS][4];     // dimension x head
};

// Scores of 16 tokens become probabilities, in place, and the running sums follow the new maximum.
DEVICE void soften(Softmax& soft, float (&scores)[WARP_TILES][4], const Range& r, int tile, float scale, int lane) {
  const bool inside = tile * TILE >= r.begin && tile * TILE + TILE <= r.end;
  bool rises = false;
  float shrink[WARP_TILES][2];
#pragma unroll
  for (int n = 0; n < WARP_TILES; ++n) {
    if (!inside) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = tile * TILE + lane / 4 + i / 2 * 8;
        if (!seen(r, token)) scores[n][i] = MINUS_INFINITY;
      }
    }
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      float highest = fmaxf(scores[n][head], scores[n][head + 2]);
      highest = fmaxf(highest, from_lane_xor(highest, 4));
      highest = fmaxf(highest, from_lane_xor(highest, 8));
      highest = fmaxf(highest, from_lane_xor(highest, 16));
      highest = fmaxf(soft.max[n][head], highest * scale);
      shrink[n][head] = power_of_two(soft.max[n][head] - highest);
      rises = rises || highest > soft.max[n][head];
      soft.max[n][head] = highest;
      scores[n][head] = power_of_two(fmaf(scores[n][head], scale, -highest));
      scores[n][head + 2] = power_of_two(fmaf(scores[n][head + 2], scale, -highest));
      soft.sum[n][head] = soft.sum[n][head] * shrink[n][head] + (scores[n][head] + scores[n][head + 2]);
    }
  }
  if (any_lane(rises)) {  // seldom, once the first tiles are through
#pragma unroll
    for (int n = 0; n < WARP_TILES; ++n)
#pragma unroll
      for (int step = 0; step < STEPS; ++step)
#pragma unroll
        for (int i = 0; i < 4; ++i) soft.out[n][step][i] *= shrink[n][i % 2];
  }
}

// One tile: scores, probabilities, output.
DEVICE void attend(Softmax& soft, const u32 (&queries)[WARP_TILES][STEPS][2], const Vector* stage, const Range& r, int tile,
                   float scale, int lane) {
  float scores[WARP_TILES][4] = {};
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    u32 left[4];
    load_keys(left, stage, step, lane);
#pragma unroll
    for (int n = 0; n < WARP_TILES; ++n) multiply_add<FACTOR_TYPE>(scores[n], left, queries[n][step]);
  }
  soften(soft, scores, r, tile, scale, lane);
  u32 weights[PROBABILITY_PARTS][WARP_TILES][2];  // as right factors: rows = tokens, column = head
#pragma unroll
  for (int n = 0; n < WARP_TILES; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float low = scores[n][half * 2], high = scores[n][half * 2 + 1];
#pragma unroll
      for (int part = 0; part < PROBABILITY_PARTS; ++part) {
        const u32 two = pack<FACTOR_TYPE>(low, high);
        weights[part][n][half] = transpose(two);
        low -= unpack<FACTOR_TYPE>(two & 0xffff);
        high -= unpack<FACTOR_TYPE>(two >> 16);
      }
    }
  }
#pragma unroll
  for (int step = 0; step < STEPS; ++step) {
    u32 left[4];
    load_values(left, stage + TILE_VECTORS, step, lane);
#pragma unroll
    for (int n = 0; n < WARP_TILES; ++n)
#pragma unroll
      for (int part = 0; part < PROBABILITY_PARTS; ++part)
        multiply_add<FACTOR_TYPE>(soft.out[n][step], left, weights[part][n]);
  }
}

// Where a warp leaves its sums for the block: [warp][head][SUM_PITCH], then per warp and head a Pair (max, sum).
DEVICE void leave_sums(const Softmax& soft, float* sums, Pair* stats, int warp, int lane) {
#pragma unroll
  for (int n = 0; n < WARP_TILES; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int head = warp * WARP_HEADS + n * 8 + lane % 4 * 2 + i;
      float sum = soft.sum[n][i];
      sum += from_lane_xor(sum, 4);
      sum += from_lane_xor(sum, 8);
      sum += from_lane_xor(sum, 16);
      if (lane / 4 == 0) store_shared(stats + head, Pair{soft.max[n][i], sum});
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // OUT_DIMENSION: with bytes, even and odd dimensions of a step were the upper and lower rows.
          const int dimension = step * 16 + (BYTES ? lane / 4 * 2 + half : lane / 4 + half * 8);
          store_shared(sums + head * SUM_PITCH + dimension, soft.out[n][step][half * 2 + i]);
        }
      }
    }
  }
}

// The warps' partial softmax as one. A warp that saw no token has a maximum of minus infinity, so that it weighs 0.
DEVICE float merge_teams(const float* sums, const Pair* stats, int row, int dimension, Pair& merged) {
  merged = Pair{MINUS_INFINITY, 0.f};
#pragma unroll
  for (int team = 0; team < TEAMS; ++team)
    merged.first = fmaxf(merged.first, load_shared(stats + team * WARP_HEADS + row).first);
  float out = 0.f;
#pragma unroll
  for (int team = 0; team < TEAMS; ++team) {
    const Pair stat = load_shared(stats + team * WARP_HEADS + row);
    const float weight = power_of_two(stat.first - merged.first);
    merged.second += weight * stat.second;
    out += weight * load_shared(sums + (team * WARP_HEADS + row) * SUM_PITCH + dimension);
  }
  return out;
}

// A sequence of no token is zeros, and a split without one says so to the merge.
DEVICE void leave_nothing(u16* out, Pair* partial_stats, i64 first_head, int split, int splits) {
  for (int i = threadIdx.x; i < GROUP * HEAD_DIM; i += THREADS) {
    if (splits == 1) store_global(out + first_head * HEAD_DIM + i, static_cast<u16>(0));
    else if (i < GROUP) store_global(partial_stats + (first_head + i) * splits + split, Pair{MINUS_INFINITY, 0.f});
  }
}

// row_blocks: entries a row of `tables` (blocks a row of the pools without tables). scale: of the softmax. k_scale and
// v_scale: what a stored fp8 number counts, 1 otherwise.
KERNEL __launch_bounds__(THREADS, BLOCKS_PER_SM)
paged_decode(u16* out, float* partials, Pair* partial_stats, const u16* q, const u8* k_pool, const u8* v_pool,
             const int* tables, const int* lengths, int row_blocks, float scale, float k_scale, float v_scale) {
  SHARED_MEMORY(shared);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int team = warp / TEAM_WARPS, team_warp = warp % TEAM_WARPS, team_thread = threadIdx.x % TEAM_THREADS;
  const int kv_head = blockIdx.x, kv_heads = gridDim.x, sequence = blockIdx.y, split = blockIdx.z, splits = gridDim.z;
  const i64 first_head = (static_cast<i64>(sequence) * kv_heads + kv_head) * GROUP;

  const Range r = range_of(load_global(lengths + sequence), split, splits);
  if (r.first_tile >= r.end_tile) return leave_nothing(out, partial_stats, first_head, split, splits);
  const int* table = PAGED ? tables + static_cast<i64>(sequence) * row_blocks : nullptr;
  const int capacity_row = PAGED ? 0 : sequence * row_blocks * BLOCK_SIZE;
  const u8* keys = k_pool + kv_head * ROW_VECTORS * 16;
  const u8* values = v_pool + kv_head * ROW_VECTORS * 16;
  const int row_bytes = kv_heads * ROW_VECTORS * 16;
  Vector* stages = reinterpret_cast<Vector*>(shared) + team * STAGES * 2 * TILE_VECTORS;

  // Copies run STAGES - 1 tiles ahead, their places one more.
  int place = place_of(table, r, r.first_tile + team, lane, capacity_row);
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    const int tile = r.first_tile + team + stage * TEAMS;
    fetch(stages + stage * 2 * TILE_VECTORS, keys, values, r, tile, place, row_bytes, team_thread);
    place = place_of(table, r, tile + TEAMS, lane, capacity_row);
  }
  u32 queries[WARP_TILES][STEPS][2];
  load_queries(queries, q + first_head * HEAD_DIM, team_warp * WARP_HEADS, lane);
  const float scale_in_twos = scale * k_scale * 1.44269504088896340736f;  // e^x = 2^(x log2 e)
  Softmax soft = {};
#pragma unroll
  for (int n = 0; n < WARP_TILES; ++n) soft.max[n][0] = soft.max[n][1] = MINUS_INFINITY;

  int stage = 0;
  for (int tile = r.first_tile + team; tile < r.end_tile; tile += TEAMS) {
    const int ahead = tile + (STAGES - 1) * TEAMS;
    const int free_stage = stage == 0 ? STAGES - 1 : stage - 1;
    fetch(stages + free_stage * 2 * TILE_VECTORS, keys, values, r, ahead, place, row_bytes, team_thread);
    place = place_of(table, r, ahead + TEAMS, lane, capacity_row);
    copies_wait<STAGES - 1>();
    team_barrier();  // every lane has waited for its own part of the tile: now all of it is there for all
    attend(soft, queries, stages + stage * 2 * TILE_VECTORS, r, tile, scale_in_twos, lane);
    team_barrier();  // all have read the tile: the next round may write over it
    stage = stage == STAGES - 1 ? 0 : stage + 1;
  }

  float* sums = reinterpret_cast<float*>(shared);
  Pair* stats = reinterpret_cast<Pair*>(sums + WARPS * WARP_HEADS * SUM_PITCH);
  block_barrier();  // the sums lie where other warps may still be reading tiles; every copy has been waited for
  leave_sums(soft, sums, stats, warp, lane);
  block_barrier();
  for (int i = threadIdx.x; i < GROUP * HEAD_DIM; i += THREADS) {
    const int row = i / HEAD_DIM, dimension = i % HEAD_DIM;
    Pair merged;
    const float sum = merge_teams(sums, stats, row, dimension, merged);
    if (splits == 1) {
      const float value = sum / merged.second * v_scale;
      store_global(out + first_head * HEAD_DIM + i, static_cast<u16>(pack<DTYPE>(value, 0.f)));
    } else {
      const i64 at = (first_head + row) * splits + split;
      store_global(partials + at * HEAD_DIM + dimension, sum);
      if (dimension == 0) store_global(partial_stats + at, merged);
    }
  }
}
EXPORT(paged_decode)
FACT(THREADS)
FACT(SHARED_BYTES)
FACT(TEAMS)
FACT(BLOCKS_PER_SM)
