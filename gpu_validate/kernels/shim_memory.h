// Of shim.h: what may be read and written, and when.
#pragma once

namespace shim {

static void claim(u32* writer, u64 places, u32 array) {
  const u32 me = 1 + blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  for (u64 i = 0; i < places; ++i) {
    if (writer[i] && writer[i] != me) fail("a write into array %u where block %u has written", array, writer[i] - 1);
    writer[i] = me;
  }
}

static void check_global(const void* at, u64 bytes, bool write, u64 alignment) {
  const u8* p = static_cast<const u8*>(at);
  if (reinterpret_cast<u64>(p) % alignment) fail("a global access of %llu bytes is not aligned", bytes);
  for (u32 i = 0; i < block.launch->region_count; ++i) {
    const Region& region = block.launch->regions[i];
    if (p < region.base || p + bytes > region.base + region.bytes) continue;
    if (write && !region.writable) fail("a write into array %u, which is an input", i);
    if (write) claim(block.writer[i] + (p - region.base) / 2, (bytes + 1) / 2, i);
    return;
  }
  fail("a global %s of %llu bytes outside the arrays of the launch", write ? "write" : "read", bytes);
}

static bool ordered(const Access& past) {  // is there a barrier between that access and this thread's next one?
  if (past.thread == NOBODY || past.thread == block.current || past.block_barriers < block.barriers) return true;
  return past.thread != SEVERAL && past.warp == block.current / 32 && past.warp_barriers < my_warp().barriers;
}

static Access here() { return {block.current, block.current / 32, my_warp().barriers, block.barriers}; }

template <class Body> static void each_word(const void* at, u64 bytes, Body body) {
  const u64 offset = static_cast<const u8*>(at) - block.shared;
  if (offset + bytes > block.shared_bytes || offset % bytes) fail("shared memory at %lld: outside or not aligned", (i64)offset);
  for (u64 i = offset / 4; i < (offset + bytes + 3) / 4; ++i) body(block.word[i], (int)i * 4);
}

static void reads_shared(const void* at, u64 bytes) {
  each_word(at, bytes, [](Word& word, int where) {
    if (word.copying) fail("shared byte %d is read before its copy was waited for", where);
    if (!ordered(word.write)) fail("race: shared byte %d is read, no barrier since thread %d wrote it", where, word.write.thread);
    Access& read = word.read;
    if (ordered(read)) { read = here(); return; }
    read.thread = read.warp == block.current / 32 && read.thread != SEVERAL ? SEVERAL_OF_WARP : SEVERAL;
    read.warp_barriers = my_warp().barriers;
  });
}

static void writes_shared(const void* at, u64 bytes, bool copy_starts) {
  each_word(at, bytes, [copy_starts](Word& word, int where) {
    if (word.copying) fail("shared byte %d is written while a copy to it is on its way", where);
    if (!ordered(word.write)) fail("race: shared byte %d is written, no barrier since thread %d wrote it", where, word.write.thread);
    if (!ordered(word.read)) fail("race: shared byte %d is written, no barrier since it was read", where);
    word.copying = copy_starts;
    word.write = here();
  });
}

static void land_copies(int pending) {  // all groups but the newest `pending`
  Thread& me = block.thread[block.current];
  int kept = 0;
  for (int i = 0; i < me.copies; ++i) {
    const Copy copy = me.copy[i];
    if (copy.group >= me.open_group - pending) { me.copy[kept++] = copy; continue; }
    if (copy.from) memcpy(copy.to, copy.from, 16);
    else memset(copy.to, 0, 16);
    each_word(copy.to, 16, [](Word& word, int) { word.copying = 0, word.write = here(); });
  }
  me.copies = kept;
}

}  // namespace shim
