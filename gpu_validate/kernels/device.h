// What the kernels ask of the machine, as PTX for sm_80 and newer. shim.h offers the same names on a CPU.
//
// Numbers of 16 bits travel as raw bits (u16, or two in a u32), so that no CUDA header is needed: NVRTC compiles a
// kernel on a machine that has CuPy and nothing else. Memory is touched only through the functions below, which is
// what lets the CPU check bounds, races and copies that nobody waited for.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

#define FLOAT16 0   // IEEE half
#define BFLOAT16 1  // upper half of a float
#define FLOAT8 2    // e4m3 without infinity, largest 448

#define KERNEL extern "C" __global__ void
#define DEVICE __device__ __forceinline__
#define ANYWHERE __host__ __device__
#define SHARED_MEMORY(name) extern __shared__ __align__(16) u8 name[]
#define EXPORT(kernel)  // the door to a kernel on a CPU; a GPU finds it by its name
#define FACT(constant)  // a constant that the host wants to read: on a CPU only

#define WHOLE_WARP 0xffffffffu
#define MINUS_INFINITY (-__int_as_float(0x7f800000))

struct alignas(16) Vector { u32 word[4]; };
struct alignas(8) Pair { float first, second; };

template <class Type> DEVICE Type load_global(const Type* at) { return *at; }
template <class Type> DEVICE void store_global(Type* at, Type value) { *at = value; }
template <class Type> DEVICE Type load_shared(const Type* at) { return *at; }
template <class Type> DEVICE void store_shared(Type* at, Type value) { *at = value; }

DEVICE u32 shared_address(const void* at) { return static_cast<u32>(__cvta_generic_to_shared(at)); }

// 16 bytes on their way from global to shared memory, past the registers and L1; zeros where not `live`.
// They may be read after copies_wait and a barrier. The L2 hint fetches the whole 128-byte line: a neighbour wants it.
DEVICE void copy_async(Vector* shared, const void* global, bool live) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(shared_address(shared)), "l"(global), "r"(live ? 16 : 0) : "memory");
}
DEVICE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory"); }

// 8x8 matrices of 16-bit numbers out of shared memory: lane i names row i % 8 of matrix i / 8. Lane l receives
// elements (l / 4, 2 (l % 4)) and its right neighbour of each matrix, or of its transpose.
DEVICE void load_matrices(u32 (&m)[4], const Vector* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_matrices_transposed(u32 (&m)[4], const Vector* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_matrices(u32 (&m)[2], const Vector* row) {  // lanes 16 to 31 name nothing
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(m[0]), "=r"(m[1]) : "r"(shared_address(row)) : "memory");
}
DEVICE void load_matrices_transposed(u32 (&m)[2], const Vector* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(m[0]), "=r"(m[1]) : "r"(shared_address(row)) : "memory");
}
DEVICE u32 transpose(u32 matrix) {  // an 8x8 matrix that lies in the registers of a warp
  u32 t;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(t) : "r"(matrix));
  return t;
}

// sum += left (16x16) times right (16x8), float32 sums. Lane l, with g = l / 4 and t = l % 4, holds of `left` rows g and
// g + 8, columns 2t, 2t + 1 (then + 8); of `right` column g, rows 2t, 2t + 1 (then + 8); of `sum` rows g, g + 8 and
// columns 2t, 2t + 1.
template <int TYPE> DEVICE void multiply_add(float (&sum)[4], const u32 (&left)[4], const u32 (&right)[2]) {
  if constexpr (TYPE == FLOAT16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  } else {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }
}

DEVICE int from_lane(int value, int lane) { return __shfl_sync(WHOLE_WARP, value, lane); }
DEVICE float from_lane_xor(float value, int mask) { return __shfl_xor_sync(WHOLE_WARP, value, mask); }
DEVICE bool any_lane(bool yes) { return __any_sync(WHOLE_WARP, yes); }
DEVICE void warp_barrier() { __syncwarp(); }
DEVICE void block_barrier() { __syncthreads(); }

DEVICE float power_of_two(float x) {  // 2 ulp, 0 for minus infinity; subnormal results are 0, far below any sum
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats as 16-bit numbers, rounded to nearest even, the first in the lower half; and back.
template <int TYPE> DEVICE u32 pack(float low, float high) {
  u32 bits;
  if constexpr (TYPE == FLOAT16) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
template <int TYPE> DEVICE float unpack(u16 bits) {
  if constexpr (TYPE == BFLOAT16) return __int_as_float(static_cast<u32>(bits) << 16);
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// Bytes of `word` in the order of the selector's digits, lowest first.
DEVICE u32 pick_bytes(u32 word, u32 selector) { return __byte_perm(word, 0, selector); }

// Two e4m3 numbers in the lower 16 bits as two halves, exactly.
DEVICE u32 halves_of_float8(u32 two) {
  u32 bits;
#if __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(bits) : "h"(static_cast<u16>(two)));
#else
  // No such instruction: the seven bits of exponent and fraction at their place in a half stand for 2^-8 of the value,
  // subnormal or not. Not a number (0x7f) reads as 480 here; append never writes it.
  const u32 spread = __byte_perm(two, 0, 0x1404);
  const u32 scaled = (spread & 0x80008000u) | ((spread & 0x7f007f00u) >> 1);
  asm("mul.f16x2 %0, %1, %2;" : "=r"(bits) : "r"(scaled), "r"(0x5c005c00u));  // 256, twice
#endif
  return bits;
}
DEVICE u32 bits_of(float x) { return __float_as_int(x); }
