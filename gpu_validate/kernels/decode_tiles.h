// Of paged_decode.cu: how the work is cut, and how tiles of keys and values come from the pools into a warp's registers.
#pragma once

static_assert(HEAD_DIM % 16 == 0, "a head is cut into products of 16 x 16");
static_assert(KV_DTYPE == FLOAT8 || KV_DTYPE == DTYPE, "16-bit keys are of the queries' type");

ANYWHERE constexpr int imin(int a, int b) { return a < b ? a : b; }
ANYWHERE constexpr int imax(int a, int b) { return a > b ? a : b; }
ANYWHERE constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

constexpr bool BYTES = KV_DTYPE == FLOAT8;
constexpr int FACTOR_TYPE = BYTES ? FLOAT16 : KV_DTYPE;   // of both factors of a product
constexpr int PROBABILITY_PARTS = FACTOR_TYPE == BFLOAT16 ? 2 : 1;
constexpr int NUMBERS = BYTES ? 16 : 8;                   // in a vector of 16 bytes
constexpr int ROW_VECTORS = HEAD_DIM / NUMBERS;
constexpr int PITCH = ROW_VECTORS | 1;                    // vectors a row in shared memory: odd, so that 8 rows meet 8 banks
constexpr int TILE = 16;                                  // tokens
constexpr int STEPS = HEAD_DIM / 16;                      // products along a head
constexpr int HEAD_TILES = ceil_div(GROUP, 8);            // columns of 8 heads
constexpr int TEAM_WARPS = ceil_div(HEAD_TILES, imax(1, 256 / HEAD_DIM));  // a warp's sums fill at most 64 registers
constexpr int WARP_TILES = ceil_div(HEAD_TILES, TEAM_WARPS);
constexpr int WARP_HEADS = 8 * WARP_TILES;
constexpr int TILE_VECTORS = TILE * PITCH;                // of keys; as many of values follow
constexpr int STAGE_BYTES = 2 * TILE_VECTORS * 16;
// As many tiles on their way as keep a multiprocessor's memory busy, whichever of threads, registers and shared memory
// says how many thread blocks it holds: 17 KiB a warp, 70 KiB a block.
constexpr int BLOCK_BYTES = 72000;
constexpr int STAGES =
    imax(2, imin(TEAM_WARPS > 1 ? 8 : 4, imin(17500 * TEAM_WARPS, BLOCK_BYTES) / STAGE_BYTES));
constexpr int TEAMS = TEAM_WARPS > 1 ? 1 : imin(4, BLOCK_BYTES / (STAGES * STAGE_BYTES));
constexpr int WARPS = TEAMS * TEAM_WARPS;
constexpr int TEAM_THREADS = 32 * TEAM_WARPS;
constexpr int THREADS = 32 * WARPS;
constexpr int SUM_PITCH = HEAD_DIM + 4;                   // floats: the lanes' columns then meet different banks
constexpr int SHARED_BYTES =
    imax(TEAMS * STAGES * STAGE_BYTES, WARPS * WARP_HEADS * (SUM_PITCH + 2) * static_cast<int>(sizeof(float)));
// What shared memory allows, and registers: sums, queries, and about 80 for all else. More would only spill.
constexpr int REGISTERS = WARP_TILES * HEAD_DIM * 3 / 8 + 80;
constexpr int BLOCKS_PER_SM = imax(1, imin(4, imin(220000 / SHARED_BYTES, 65536 / (REGISTERS * THREADS))));
constexpr bool WHOLE_TILES = !PAGED || BLOCK_SIZE % TILE == 0;  // a tile's rows lie one behind the other

// The tokens of one sequence that this thread block reads, in tiles.
struct Range {
  int begin, end;             // tokens seen: begin <= i < end
  int first_tile, end_tile;   // of this split
};

DEVICE Range range_of(int length, int split, int splits) {
  Range r;
  r.begin = WINDOW > 0 ? imax(0, length - WINDOW) : 0;
  r.end = length;
  const int first = r.begin / TILE;
  const int tiles = ceil_div(r.end, TILE) - first;
  const int share = ceil_div(ceil_div(tiles, splits), TEAMS) * TEAMS;  // every warp gets as many
  r.first_tile = first + split * share;
  r.end_tile = imin(r.first_tile + share, first + tiles);
  return r;
}

// Where the rows of a tile lie in the pool: of its first token (WHOLE_TILES), or of token lane % 16.
DEVICE int place_of(const int* table, const Range& r, int tile, int lane, int capacity_row) {
  int token = tile * TILE;
  if (!WHOLE_TILES) token = imax(token + lane % TILE, r.begin);  // what lies before a window may have been given back
  if (token >= r.end) return 0;
  if (!PAGED) return capacity_row + token;
  return load_global(table + token / BLOCK_SIZE) * BLOCK_SIZE + token % BLOCK_SIZE;
}

DEVICE bool seen(const Range& r, int token) { return (WINDOW == 0 || token >= r.begin) && token < r.end; }

// Starts the copies of a tile's keys and values. Rows that nobody may see become zeros: memory never written can hold
// anything, and a weight of zero times not-a-number is not zero.
DEVICE void fetch(Vector* stage, const u8* keys, const u8* values, const Range& r, int tile, int place, int row_bytes,
                  int team_thread) {
  if (tile < r.end_tile) {
    constexpr int COPIES = ceil_div(TILE * ROW_VECTORS, TEAM_THREADS);
    const i64 first = static_cast<i64>(place) * row_bytes;
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const int copy = team_thread + i * TEAM_THREADS;
      const int row = copy / ROW_VECTORS, vector = copy % ROW_VECTORS;
      const bool live = seen(r, tile * TILE + row);
      i64 at = first + (row * row_bytes + vector * 16);  // one 64-bit product a tile
      if (!WHOLE_TILES) at = static_cast<i64>(from_lane(place, row % TILE)) * row_bytes + vector * 16;
      if (!PAGED) at = live ? at : 0;  // through a table even rows that are not read lie in the pool, here perhaps not
      if (copy < TILE * ROW_VECTORS) {
        copy_async(stage + row * PITCH + vector, keys + at, live);
        copy_async(stage + TILE_VECTORS + row * PITCH + vector, values + at, live);
      }
    }
  }
  copies_commit();  // an empty group too: the count of groups in flight is then the same at every tile
}

DEVICE void team_barrier() {
  if (TEAM_WARPS == 1) warp_barrier();
  else block_barrier();  // the team is the block
}

// Queries as right factors: column = head, rows = 16 dimensions. Missing heads of the last tile are zeros.
DEVICE void load_queries(u32 (&queries)[WARP_TILES][STEPS][2], const u16* q, int first_head, int lane) {
#pragma unroll
  for (int n = 0; n < WARP_TILES; ++n) {
    const int head = first_head + n * 8 + lane / 4;
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // KEY_DIMENSION: bytes 4t to 4t + 3 of a key come together; 16-bit numbers 2t, 2t + 1 and 8 further.
        const int dimension = step * 16 + (BYTES ? lane % 4 * 4 + half * 2 : lane % 4 * 2 + half * 8);
        u32 two = 0;
        if (head < GROUP) two = load_global(reinterpret_cast<const u32*>(q + head * HEAD_DIM + dimension));
        if (DTYPE != FACTOR_TYPE) {  // bfloat16 as a half: exact, but for what is beyond a half's range
          const float low = unpack<DTYPE>(two & 0xffff), high = unpack<DTYPE>(two >> 16);
          two = pack<FACTOR_TYPE>(fminf(fmaxf(low, -65504.f), 65504.f), fminf(fmaxf(high, -65504.f), 65504.f));
        }
        queries[n][step][half] = two;
      }
    }
  }
}

// 16 tokens x 16 dimensions of keys as a left factor.
DEVICE void load_keys(u32 (&left)[4], const Vector* keys, int step, int lane) {
  if constexpr (BYTES) {
    u32 bytes[2];
    load_matrices(bytes, keys + lane % 16 * PITCH + step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // tokens 0 to 7, 8 to 15
      left[half] = halves_of_float8(bytes[half] & 0xffff);
      left[half + 2] = halves_of_float8(bytes[half] >> 16);
    }
  } else {
    load_matrices(left, keys + lane % 16 * PITCH + step * 2 + lane / 16);
  }
}

// 16 dimensions x 16 tokens of values, transposed, as a left factor.
DEVICE void load_values(u32 (&left)[4], const Vector* values, int step, int lane) {
  if constexpr (BYTES) {
    u32 bytes[2];
    load_matrices_transposed(bytes, values + lane % 16 * PITCH + step);
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // tokens 0 to 7, 8 to 15; even dimensions, odd dimensions
      left[half * 2] = halves_of_float8(pick_bytes(bytes[half], 0x4420));
      left[half * 2 + 1] = halves_of_float8(pick_bytes(bytes[half], 0x4431));
    }
  } else {
    load_matrices_transposed(left, values + (lane % 8 + lane / 16 * 8) * PITCH + step * 2 + lane / 8 % 2);
  }
}
