// The kernels on a CPU: the names of device.h, for g++ -x c++. Slow, strict, and the same arithmetic.
//
// Each thread of a block is a coroutine. A thread runs until it meets others: the lanes of its warp (shuffles, matrix
// loads, products, warp barriers) or its block. Warps and lanes take turns in an order drawn from a seed. What a GPU
// forgives by luck is an error here, with a message:
//   * lanes that meet at different operations, or of which some never come;
//   * two thread blocks that write one place: they may run in any order;
//   * a global access outside the arrays of the launch, a write into one of its inputs, an access not aligned;
//   * a copy read before its thread has waited for it: copies land at the wait and not before;
//   * a race in shared memory: two threads at one word, one of them writing, without a barrier between. Shuffles and
//     products are no barriers for memory. Each word remembers who wrote and who read it, at which barrier counts.
// Shared memory starts as not-a-number in every format. Counters tell what was read, and how often banks clashed.
#pragma once

#include <csetjmp>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ucontext.h>
#include <utility>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#define FLOAT16 0
#define BFLOAT16 1
#define FLOAT8 2

#define KERNEL static void
#define DEVICE static inline
#define ANYWHERE
#define SHARED_MEMORY(name) u8* const name = shim::block.shared
#define EXPORT(kernel) \
  extern "C" int launch(const shim::Launch* launch, void** arguments) { return shim::run(kernel, *launch, arguments); }
#define FACT(constant) extern "C" { extern const int fact_##constant; const int fact_##constant = constant; }
#define __launch_bounds__(...)
#define MINUS_INFINITY (-INFINITY)

struct alignas(16) Vector { u32 word[4]; };
struct alignas(8) Pair { float first, second; };

namespace shim {

struct Region { const u8* base; u64 bytes; int writable; };
struct Counters { u64 copied_bytes, stored_bytes, loads, matrix_loads, bank_conflicts, barriers, products; };
struct Launch {
  u32 grid[3];
  u32 threads;
  u64 shared_bytes, seed;
  const Region* regions;
  u32 region_count;
  Counters* counters;
};

constexpr int MAX_THREADS = 1024, MAX_COPIES = 2048, STACK_BYTES = 64 << 10, MAX_SHARED_BYTES = 227 << 10;
constexpr int NOBODY = -1, SEVERAL_OF_WARP = -2, SEVERAL = -3;

enum State { READY, AT_WARP, AT_BLOCK, DONE };
struct Copy { u8* to; const u8* from; int group; };
struct Thread {
  jmp_buf turn;
  ucontext_t start;
  State state;
  bool started;
  int open_group, copies;  // groups committed, copies on their way
  Copy* copy;
  u8* stack;
};
struct Exchange { float number[12]; u32 word[4]; const u8* row; };
struct Warp { int arrived, round; u32 barriers; const char* operation; Exchange exchange[2][32]; };
struct Access { int thread, warp; u32 warp_barriers, block_barriers; };  // of one word of shared memory
struct Word { Access write, read; int copying; };
struct Index { u32 x, y, z; };
struct Block {
  u8* shared;
  u64 shared_bytes;
  u32 barriers;
  int threads, arrived, done, current;
  const Launch* launch;
  Thread* thread;
  Warp warp[MAX_THREADS / 32];
  Word* word;
  u32** writer;  // of each region, of each 2 bytes: 1 + the block that wrote it, 0 for none
  u64 random;
  jmp_buf scheduler, abort;
  void (*body)(void*);
  void* body_data;
};

static Block block;
static char message[400];

[[noreturn]] __attribute__((format(printf, 1, 2))) static void fail(const char* format, ...);

}  // namespace shim

static shim::Index threadIdx, blockIdx, blockDim, gridDim;

namespace shim {

static void fail(const char* format, ...) {
  va_list rest;
  va_start(rest, format);
  int n = snprintf(message, sizeof message, "block (%u, %u, %u), thread %d: ", blockIdx.x, blockIdx.y, blockIdx.z, block.current);
  vsnprintf(message + n, sizeof message - n, format, rest);
  va_end(rest);
  _longjmp(block.abort, 1);
}

static u32 random_below(u32 n) {  // xorshift64*
  block.random ^= block.random >> 12, block.random ^= block.random << 25, block.random ^= block.random >> 27;
  return static_cast<u32>((block.random * 0x2545f4914f6cdd1dull >> 32) % n);
}

static void pause(State state) {
  Thread& me = block.thread[block.current];
  me.state = state;
  if (!_setjmp(me.turn)) _longjmp(block.scheduler, 1);
}

static Warp& my_warp() { return block.warp[block.current / 32]; }

// All lanes of the warp come to the same operation before one goes on.
static void meet_warp(const char* operation, bool orders_memory = false) {
  Warp& warp = my_warp();
  if (warp.arrived == 0) warp.operation = operation;
  if (warp.operation != operation) fail("%s, while other lanes of the warp are at %s", operation, warp.operation);
  if (++warp.arrived < 32) return pause(AT_WARP);
  warp.arrived = 0;
  warp.round ^= 1;
  warp.barriers += orders_memory;
  const int first = block.current / 32 * 32;
  for (int lane = 0; lane < 32; ++lane)
    if (block.thread[first + lane].state == AT_WARP) block.thread[first + lane].state = READY;
}

static void meet_block() {
  if (++block.arrived < block.threads) return pause(AT_BLOCK);
  block.arrived = 0;
  ++block.barriers;
  ++block.launch->counters->barriers;
  for (int i = 0; i < block.threads; ++i)
    if (block.thread[i].state == AT_BLOCK) block.thread[i].state = READY;
}

// What this lane offers to its warp. Rounds alternate: who writes the next offer has read the last one.
static Exchange& offer() { return my_warp().exchange[my_warp().round][block.current % 32]; }
static const Exchange* offers() { return my_warp().exchange[my_warp().round ^ 1]; }  // after meet_warp

}  // namespace shim

#include "shim_memory.h"

namespace shim {

// The scheduler --------------------------------------------------------------------------------------------------

static void thread_body() {
  for (;;) {
    block.body(block.body_data);
    if (block.thread[block.current].copies) fail("the kernel ends with copies that nobody waited for");
    ++block.done;
    pause(DONE);
  }
}

static void take_turn(int index) {
  Thread& thread = block.thread[index];
  block.current = index;
  threadIdx.x = index;
  if (_setjmp(block.scheduler)) return;
  if (thread.started) _longjmp(thread.turn, 1);
  thread.started = true;
  setcontext(&thread.start);
}

static void run_block() {
  block.arrived = block.done = 0, block.barriers = 0;
  memset(block.shared, 0xff, block.shared_bytes);
  for (u64 i = 0; i < block.shared_bytes / 4; ++i) block.word[i].write.thread = block.word[i].read.thread = NOBODY, block.word[i].copying = 0;
  for (int i = 0; i < block.threads; ++i) {
    Thread& thread = block.thread[i];
    thread.state = READY;
    thread.open_group = thread.copies = 0;
  }
  const int warps = block.threads / 32;
  for (int i = 0; i < warps; ++i) block.warp[i].arrived = block.warp[i].round = 0, block.warp[i].barriers = 0;
  while (block.done < block.threads) {
    bool ran = false;
    const u32 first_warp = random_below(warps);
    for (int w = 0; w < warps; ++w) {
      const int warp = (first_warp + w) % warps;
      const u32 first = random_below(32), step = random_below(16) * 2 + 1;  // odd: every lane once
      for (u32 i = 0; i < 32; ++i) {
        const int index = warp * 32 + (first + i * step) % 32;
        if (block.thread[index].state == READY) take_turn(index), ran = true;
      }
      if (ran && random_below(2)) break;  // let one warp run ahead of the others
    }
    if (!ran) fail("no thread can go on: some wait at a barrier that others never reach");
  }
}

static void allocate(const Launch& launch) {
  block.threads = launch.threads;
  block.shared_bytes = launch.shared_bytes;
  block.shared = static_cast<u8*>(aligned_alloc(128, (launch.shared_bytes + 255) / 128 * 128));
  block.word = static_cast<Word*>(malloc((launch.shared_bytes / 4 + 1) * sizeof(Word)));
  block.writer = static_cast<u32**>(calloc(launch.region_count + 1, sizeof(u32*)));
  for (u32 i = 0; i < launch.region_count; ++i)
    if (launch.regions[i].writable) block.writer[i] = static_cast<u32*>(calloc(launch.regions[i].bytes / 2 + 1, sizeof(u32)));
  block.thread = static_cast<Thread*>(calloc(launch.threads, sizeof(Thread)));
  for (u32 i = 0; i < launch.threads; ++i) {
    Thread& thread = block.thread[i];
    thread.copy = static_cast<Copy*>(malloc(MAX_COPIES * sizeof(Copy)));
    thread.stack = static_cast<u8*>(malloc(STACK_BYTES));
    getcontext(&thread.start);
    thread.start.uc_stack.ss_sp = thread.stack;
    thread.start.uc_stack.ss_size = STACK_BYTES;
    thread.start.uc_link = nullptr;
    makecontext(&thread.start, thread_body, 0);
  }
}

static void release() {
  for (u32 i = 0; i < block.launch->region_count; ++i) free(block.writer[i]);
  free(block.writer);
  for (int i = 0; i < block.threads; ++i) free(block.thread[i].copy), free(block.thread[i].stack);
  free(block.thread), free(block.word), free(block.shared);
}

template <class... Arguments> struct Call { void (*kernel)(Arguments...); void** arguments; };
template <class... Arguments, std::size_t... I>
static void call(void (*kernel)(Arguments...), void** arguments, std::index_sequence<I...>) {
  kernel(*static_cast<Arguments*>(arguments[I])...);
}

// 0, or 1 with a reason in last_message().
template <class... Arguments> static int run(void (*kernel)(Arguments...), const Launch& launch, void** arguments) {
  using This = Call<Arguments...>;
  static This now;
  now = This{kernel, arguments};
  message[0] = 0;
  if (launch.threads % 32 || launch.threads > MAX_THREADS || launch.shared_bytes > MAX_SHARED_BYTES) {
    snprintf(message, sizeof message, "%u threads with %llu bytes of shared memory: no GPU has that", launch.threads, launch.shared_bytes);
    return 1;
  }
  block.launch = &launch;
  block.random = launch.seed * 2 + 1;
  block.body = [](void* data) { This& that = *static_cast<This*>(data); call(that.kernel, that.arguments, std::index_sequence_for<Arguments...>{}); };
  block.body_data = &now;
  gridDim = {launch.grid[0], launch.grid[1], launch.grid[2]};
  blockDim = {launch.threads, 1, 1};
  allocate(launch);
  volatile int failed = _setjmp(block.abort);
  if (!failed)
    for (blockIdx.z = 0; blockIdx.z < gridDim.z; ++blockIdx.z)
      for (blockIdx.y = 0; blockIdx.y < gridDim.y; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < gridDim.x; ++blockIdx.x) run_block();
  release();
  return failed;
}

}  // namespace shim

extern "C" const char* last_message() { return shim::message; }

#include "shim_device.h"
