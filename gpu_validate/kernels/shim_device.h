// The functions of device.h for shim.h: their arithmetic, and what each says to the checks.
#pragma once

template <class Type> static Type load_global(const Type* at) {
  shim::check_global(at, sizeof(Type), false, sizeof(Type));
  ++shim::block.launch->counters->loads;
  return *at;
}
template <class Type> static void store_global(Type* at, Type value) {
  shim::check_global(at, sizeof(Type), true, sizeof(Type));
  shim::block.launch->counters->stored_bytes += sizeof(Type);
  *at = value;
}
template <class Type> static Type load_shared(const Type* at) {
  shim::reads_shared(at, sizeof(Type));
  return *at;
}
template <class Type> static void store_shared(Type* at, Type value) {
  shim::writes_shared(at, sizeof(Type), false);
  *at = value;
}

static void copy_async(Vector* shared, const void* global, bool live) {
  shim::Thread& me = shim::block.thread[shim::block.current];
  if (live) shim::check_global(global, 16, false, 16);
  shim::writes_shared(shared, 16, true);
  if (me.copies == shim::MAX_COPIES) shim::fail("more than %d copies on their way", shim::MAX_COPIES);
  me.copy[me.copies++] = {reinterpret_cast<u8*>(shared), live ? static_cast<const u8*>(global) : nullptr, me.open_group};
  if (live) shim::block.launch->counters->copied_bytes += 16;
}
static void copies_commit() { ++shim::block.thread[shim::block.current].open_group; }
template <int PENDING> static void copies_wait() { shim::land_copies(PENDING); }

static void warp_barrier() { shim::meet_warp("a barrier", true); }
static void block_barrier() { shim::meet_block(); }

// Numbers --------------------------------------------------------------------------------------------------------

static u32 bits_of(float x) {
  u32 bits;
  memcpy(&bits, &x, 4);
  return bits;
}
static float float_of(u32 bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

namespace shim {

static u16 half_of(float x) {  // to nearest, ties to even
  const u32 bits = bits_of(x), size = bits & 0x7fffffff;
  const u16 sign = bits >> 16 & 0x8000;
  if (size > 0x7f800000) return sign | 0x7fff;
  if (size >= 0x477ff000) return sign | 0x7c00;  // 65,520 and more round to infinity
  if (size < 0x38800000) {                        // subnormal: multiples of 2^-24, by the float adder's own rounding
    return sign | static_cast<u16>(bits_of(float_of(size) + 0.5f) - bits_of(0.5f));
  }
  return sign | static_cast<u16>((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}
static float float_of_half(u16 half) {
  const u32 sign = static_cast<u32>(half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  const float size = exponent ? float_of((exponent + 112) << 23 | fraction << 13) : static_cast<float>(fraction) / 16777216.f;
  return sign ? -size : size;
}
static u16 bfloat_of(float x) {
  const u32 bits = bits_of(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<u16>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float float_of_float8(u8 bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return float_of(0x7fc00000);
  const float size = exponent ? ldexpf(1.f + fraction / 8.f, exponent - 7) : ldexpf(fraction / 8.f, -6);
  return bits & 0x80 ? -size : size;
}

}  // namespace shim

template <int TYPE> static u32 pack(float low, float high) {
  if (TYPE == FLOAT16) return shim::half_of(low) | static_cast<u32>(shim::half_of(high)) << 16;
  return shim::bfloat_of(low) | static_cast<u32>(shim::bfloat_of(high)) << 16;
}
template <int TYPE> static float unpack(u16 bits) {
  return TYPE == FLOAT16 ? shim::float_of_half(bits) : float_of(static_cast<u32>(bits) << 16);
}
static u32 halves_of_float8(u32 two) {
  return pack<FLOAT16>(shim::float_of_float8(two & 0xff), shim::float_of_float8(two >> 8 & 0xff));
}
static u32 pick_bytes(u32 word, u32 selector) {
  u32 picked = 0;
  for (int i = 0; i < 4; ++i) {
    const u32 digit = selector >> 4 * i & 7;
    picked |= (digit < 4 ? word >> 8 * digit & 0xff : 0) << 8 * i;
  }
  return picked;
}
static float power_of_two(float x) {
  const float y = exp2f(x);
  return y < 1.17549435e-38f ? 0.f : y;
}

// Lanes of a warp together ---------------------------------------------------------------------------------------

static int from_lane(int value, int lane) {
  shim::offer().word[0] = value;
  shim::meet_warp("a shuffle");
  if (lane < 0 || lane > 31) shim::fail("a shuffle from lane %d", lane);
  return shim::offers()[lane].word[0];
}
static float from_lane_xor(float value, int mask) {
  shim::offer().number[0] = value;
  shim::meet_warp("a shuffle");
  return shim::offers()[(shim::block.current % 32) ^ mask].number[0];
}
static bool any_lane(bool yes) {
  shim::offer().word[0] = yes;
  shim::meet_warp("a vote");
  for (int lane = 0; lane < 32; ++lane)
    if (shim::offers()[lane].word[0]) return true;
  return false;
}

template <int COUNT> static void exchange_rows(const Vector* row) {
  static_assert(COUNT == 2 || COUNT == 4, "a GPU loads two matrices or four here");
  shim::offer().row = reinterpret_cast<const u8*>(row);
  shim::meet_warp("a load of matrices");
  if (shim::block.current % 32) return;
  shim::Counters& counters = *shim::block.launch->counters;
  for (int matrix = 0; matrix < COUNT; ++matrix) {  // 8 rows of 16 bytes come at once where no two lie in one bank
    u32 banks = 0;
    for (int i = 0; i < 8; ++i) banks |= 1u << (reinterpret_cast<u64>(shim::offers()[matrix * 8 + i].row) / 16 % 8);
    ++counters.matrix_loads;
    counters.bank_conflicts += 8 - __builtin_popcount(banks);
  }
}
template <int COUNT> static void load_matrices(u32 (&m)[COUNT], const Vector* row) {
  exchange_rows<COUNT>(row);
  const int lane = shim::block.current % 32;
  for (int matrix = 0; matrix < COUNT; ++matrix) {
    const u8* at = shim::offers()[matrix * 8 + lane / 4].row + lane % 4 * 4;
    shim::reads_shared(at, 4);
    memcpy(&m[matrix], at, 4);
  }
}
template <int COUNT> static void load_matrices_transposed(u32 (&m)[COUNT], const Vector* row) {
  exchange_rows<COUNT>(row);
  const int lane = shim::block.current % 32;
  for (int matrix = 0; matrix < COUNT; ++matrix) {
    u16 two[2];
    for (int i = 0; i < 2; ++i) {
      const u8* at = shim::offers()[matrix * 8 + lane % 4 * 2 + i].row + lane / 4 * 2;
      shim::reads_shared(at, 2);
      memcpy(&two[i], at, 2);
    }
    m[matrix] = two[0] | static_cast<u32>(two[1]) << 16;
  }
}
static u32 transpose(u32 matrix) {
  shim::offer().word[0] = matrix;
  shim::meet_warp("a transposition");
  const int lane = shim::block.current % 32, from = lane % 4 * 8 + lane / 8, shift = lane / 4 % 2 * 16;
  return (shim::offers()[from].word[0] >> shift & 0xffff) | (shim::offers()[from + 4].word[0] >> shift & 0xffff) << 16;
}
template <int TYPE> static void multiply_add(float (&sum)[4], const u32 (&left)[4], const u32 (&right)[2]) {
  float* mine = shim::offer().number;
  for (int i = 0; i < 4; ++i) mine[2 * i] = unpack<TYPE>(left[i] & 0xffff), mine[2 * i + 1] = unpack<TYPE>(left[i] >> 16);
  for (int i = 0; i < 2; ++i) mine[8 + 2 * i] = unpack<TYPE>(right[i] & 0xffff), mine[9 + 2 * i] = unpack<TYPE>(right[i] >> 16);
  shim::meet_warp("a product");
  const shim::Exchange* all = shim::offers();
  const int lane = shim::block.current % 32;
  if (lane == 0) ++shim::block.launch->counters->products;
  for (int k = 0; k < 16; ++k) {  // element (row, k) of left lies in lane row % 8 * 4 + k % 8 / 2, (k, column) alike
    const float* rows = all[lane / 4 * 4 + k % 8 / 2].number + k / 8 * 4 + k % 2;
    for (int column = 0; column < 2; ++column) {
      const float factor = all[(lane % 4 * 2 + column) * 4 + k % 8 / 2].number[8 + k / 8 * 2 + k % 2];
      sum[column] += rows[0] * factor;
      sum[column + 2] += rows[2] * factor;
    }
  }
}
