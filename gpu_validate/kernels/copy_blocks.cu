// Copy-on-write: whole blocks of both pools, from pairs[i][0] to pairs[i][1].
//
//   pairs [count, 2] int32: no destination twice, and none that is a source too (the order of copies is free)
//
// Grid (count, 2, pieces), 256 threads: y = 0 copies keys, 1 values; the pieces of a block share its vectors of 16 bytes.
#include "machine.h"

KERNEL __launch_bounds__(256)
copy_blocks(Vector* k_pool, Vector* v_pool, const int* pairs, int block_vectors) {
  Vector* pool = blockIdx.y == 0 ? k_pool : v_pool;
  const Vector* from = pool + static_cast<i64>(load_global(pairs + 2 * blockIdx.x)) * block_vectors;
  Vector* to = pool + static_cast<i64>(load_global(pairs + 2 * blockIdx.x + 1)) * block_vectors;
  const int step = gridDim.z * blockDim.x;
#pragma unroll 4  // loads of several vectors in flight before the first store waits
  for (int i = blockIdx.z * blockDim.x + threadIdx.x; i < block_vectors; i += step) store_global(to + i, load_global(from + i));
}
EXPORT(copy_blocks)
