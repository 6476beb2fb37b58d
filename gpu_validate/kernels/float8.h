// A float as e4m3: to nearest, ties to even, at most 448 in size (as vLLM's cache kernels saturate).
// In integers, as sm_80 has no instruction for it, and a decode step stores few numbers.
#pragma once

DEVICE u8 float8_of(float x) {
  const u32 bits = bits_of(x), sign = bits >> 24 & 0x80;
  const u32 size = bits & 0x7fffffff;
  if (size > 0x7f800000) return 0xff;           // not a number
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
