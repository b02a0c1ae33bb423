// The hazard checker: does something order every two accesses to one place, unless both only read?
//
// The hooks in hazard_hooks.cpp say what the kernel accesses, the runtime what it waits for. One OS
// thread runs the blocks one after the other, so a single clock suffices. It ticks at every event
// that orders anything: the start of a block, a barrier, __syncwarp, a fence, an atomic operation.
// An access is remembered as its tick and its thread. Whether it comes before the access at hand is
// then a matter of comparing ticks:
//
//   in the same thread              always;
//   in the same block               a barrier was released since, or a __syncwarp in which both
//                                   lanes took part (if only through other lanes), or as below;
//   in another block                the writer's block published it, by __threadfence() in the
//                                   thread itself or in one that a barrier or __syncwarp had put
//                                   after it, and the reader's block did an atomic operation, in
//                                   the same warp or before its last barrier;
//   in an earlier launch            always.
//
// Two atomic operations never conflict. Nor does a plain read with others' atomic operations if the
// same thread goes on to a compare-and-swap there, which finds out if the value has changed. That
// shows later only, so such a finding waits until the end of the block. Shuffles order nothing, as
// on the GPU. The findings hardly depend on the schedule, since it is the missing order that is
// found and not its effect. Not modelled: locks.
#include "hazards.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "diagnostics.h"
#include "hazard_shadow.h"

namespace cudaemu {
namespace hazards {
namespace {

enum class Space { Shared, Global };

struct BlockRecord {
  uint64_t start;
  // Accesses of any of its threads before this tick were followed by a barrier and then a fence.
  uint64_t published;
  const char *last_atomic;  // the address
};

// A finding about a read that may yet turn out to be the start of a compare-and-swap.
struct Pending {
  unsigned reader;
  const char *address;
  std::string key;
  std::string line;
};

// The state of the launch at hand.
struct Checker {
  uint64_t now = 1;
  uint64_t launch_start = 1;
  const char *library = nullptr;
  const char *library_base = nullptr;
  unsigned threads = 0;
  std::vector<BlockRecord> blocks;  // in the order in which they ran
  // For each thread of each block so far: its accesses before this tick were followed by a fence.
  std::vector<uint64_t> published;

  // The block at hand.
  uint64_t block_start = 1;
  uint64_t epoch_start = 1;  // the last barrier, or the start of the block
  uint64_t first_global_atomic = 0;
  uint64_t last_atomic_of_warp[MAX_THREADS / WARP];
  unsigned warps_with_global_atomics = 0;
  size_t dynamic_shared_bytes = 0;
  // joined[a][b]: what lane b did before this tick comes before what lane a does now.
  uint64_t joined[MAX_THREADS / WARP][WARP][WARP];
  std::vector<Pending> pending;
};

Checker checker;
std::vector<Shadow> buffers;        // sorted by address
std::vector<Shadow> shared_memory;  // static, and dynamic if there is any

struct Me {
  unsigned thread;
  unsigned warp() const { return thread / WARP; }
  unsigned lane() const { return thread % WARP; }
};

bool in_this_block(Access access) { return access.tick() >= checker.block_start; }

size_t ordinal_of_block(uint64_t tick) {
  const auto after = std::upper_bound(
      checker.blocks.begin(), checker.blocks.end(), tick,
      [](uint64_t wanted, const BlockRecord &block) { return wanted < block.start; });
  return static_cast<size_t>(after - checker.blocks.begin()) - 1;
}

bool is_published(Access access) {
  const size_t block = ordinal_of_block(access.tick());
  return access.tick() < checker.blocks[block].published ||
         access.tick() < checker.published[block * checker.threads + access.thread()];
}

bool has_taken_over(Me me) {
  const uint64_t first = checker.first_global_atomic;
  const bool before_barrier = first != 0 && first < checker.epoch_start;
  return before_barrier || (checker.warps_with_global_atomics >> me.warp() & 1) != 0;
}

// Null if the earlier access is ordered before the one at hand, else what is missing.
const char *what_is_missing(Access earlier, Me me, Space space) {
  // Shared memory starts anew with each block.
  if (earlier.tick() < (space == Space::Shared ? checker.block_start : checker.launch_start)) {
    return nullptr;
  }
  if (in_this_block(earlier)) {
    if (earlier.thread() == me.thread || earlier.tick() < checker.epoch_start) return nullptr;
    // Warps of one block may hand over by fence and atomic operation as blocks do.
    if (is_published(earlier) && checker.last_atomic_of_warp[me.warp()] > earlier.tick()) {
      return nullptr;
    }
    if (earlier.thread() / WARP != me.warp()) return "no __syncthreads() between them";
    const bool joined =
        earlier.tick() < checker.joined[me.warp()][me.lane()][earlier.thread() % WARP];
    return joined ? nullptr : "no __syncwarp() between them";
  }
  if (!is_published(earlier)) return "no __threadfence() after it";
  if (!has_taken_over(me)) return "no atomic operation that hands it over";
  return nullptr;
}

std::string token(uint32_t counter) {
  char text[512];
  snprintf(text, sizeof text, "{%s+0x%x}", checker.library, counter);
  return text;
}

const char *did(Kind kind) {
  return kind == Kind::Read ? "read" : kind == Kind::Write ? "write" : "atomic operation";
}

std::string describe_thread(Access access) {
  const std::string thread = "thread " + std::to_string(access.thread());
  if (in_this_block(access)) return thread;
  return "block " + std::to_string(ordinal_of_block(access.tick())) + ", " + thread;
}

struct Attempt {
  Kind kind;
  const char *address;
  Space space;
  Me me;
  Access access;
};

void report(const Attempt &now, Kind earlier_kind, Access earlier, const char *missing) {
  char key[64];
  snprintf(key, sizeof key, "%x %x %d", now.access.counter(), earlier.counter(),
           static_cast<int>(now.kind));
  const std::string place = token(now.access.counter()) + ": hazard in " +
                            (now.space == Space::Shared ? "shared" : "global") + " memory: ";
  const std::string line = place + did(now.kind) + " by thread " + std::to_string(now.me.thread) +
                           " after " + did(earlier_kind) + " by " + describe_thread(earlier) +
                           " at " + token(earlier.counter()) + ", " + missing + " (block " +
                           std::to_string(running_block->number()) + ")";
  if (now.kind == Kind::Read && earlier_kind == Kind::Atomic) {
    checker.pending.push_back({now.me.thread, now.address, key, line});
  } else if (now.kind == Kind::Atomic && earlier_kind == Kind::Read && in_this_block(earlier)) {
    checker.pending.push_back({earlier.thread(), now.address, key, line});
  } else {
    diagnose_line(key, line);
  }
}

// What this thread has read here was the start of a compare-and-swap.
void drop_pending(const char *address, Me me) {
  const auto dropped =
      std::remove_if(checker.pending.begin(), checker.pending.end(), [&](const Pending &finding) {
        return finding.reader == me.thread && finding.address == address;
      });
  checker.pending.erase(dropped, checker.pending.end());
}

void diagnose_pending() {
  for (const Pending &finding : checker.pending) diagnose_line(finding.key, finding.line);
  checker.pending.clear();
}

bool is_own(Access access, Me me) {
  return !access.none() && in_this_block(access) && access.thread() == me.thread;
}

// How far from the thread at hand an access was made. The farther, the harder to put in order: of
// two earlier accesses the farther one is worth remembering.
unsigned distance(Access access, Me me) {
  if (access.none() || access.tick() < checker.launch_start) return 0;
  if (!in_this_block(access)) return 4;
  if (access.tick() < checker.epoch_start) return 1;
  return access.thread() / WARP == me.warp() ? 2 : 3;
}

void remember(const Attempt &now, Access &latest, Access &other) {
  if (!is_own(latest, now.me) && distance(latest, now.me) >= distance(other, now.me)) {
    other = latest;
  }
  latest = now.access;
}

// An arrival counter may be reset by plain assignment: this thread's atomic operation on it comes
// after those of all others, since it was the last thing that the other block did atomically. An
// accumulator differs in that its users go on to an atomic operation elsewhere.
bool is_arrival_counter(const Cell &cell, const Attempt &now) {
  if (!cell.write.atomic() || !cell.other_write.atomic()) return false;
  if (cell.other_write.tick() < checker.launch_start) return false;
  const BlockRecord &other = checker.blocks[ordinal_of_block(cell.other_write.tick())];
  return other.last_atomic == now.address &&
         what_is_missing(cell.write, now.me, now.space) == nullptr;
}

void check_cell(Cell &cell, const Attempt &now) {
  const auto check = [&](Kind earlier_kind, Access earlier) {
    if (now.kind == Kind::Atomic && earlier.atomic()) return;
    const char *missing = what_is_missing(earlier, now.me, now.space);
    if (missing == nullptr) return;
    if (earlier_kind == Kind::Read && !in_this_block(earlier)) missing = "unordered blocks";
    report(now, earlier.atomic() ? Kind::Atomic : earlier_kind, earlier, missing);
  };
  check(Kind::Write, cell.write);
  if (!is_arrival_counter(cell, now)) check(Kind::Write, cell.other_write);
  if (now.kind != Kind::Read) {
    check(Kind::Read, cell.read);
    check(Kind::Read, cell.other_read);
  }
  switch (now.kind) {
    case Kind::Read:
      remember(now, cell.read, cell.other_read);
      break;
    case Kind::Atomic:
      if (is_own(cell.read, now.me)) cell.read = {};
      if (is_own(cell.other_read, now.me)) cell.other_read = {};
      remember(now, cell.write, cell.other_write);
      break;
    case Kind::Write:
      cell = {};
      cell.write = now.access;
  }
}

const Shadow *find_shared(const char *address) {
  for (const Shadow &shadow : shared_memory) {
    if (shadow.contains(address)) return &shadow;
  }
  return nullptr;
}

const Shadow *find_buffer(const char *address) {
  const auto after = std::upper_bound(
      buffers.begin(), buffers.end(), address,
      [](const char *wanted, const Shadow &shadow) { return wanted < shadow.start(); });
  if (after == buffers.begin() || !(after - 1)->contains(address)) return nullptr;
  return &*(after - 1);
}

}  // namespace

void access_memory(const void *pointer, size_t bytes, Kind kind, const void *return_address) {
  if (this_thread == nullptr) return;
  const char *address = static_cast<const char *>(pointer);
  const Shadow *shadow = find_shared(address);
  const Space space = shadow != nullptr ? Space::Shared : Space::Global;
  if (shadow == nullptr) shadow = find_buffer(address);
  if (shadow == nullptr) return;  // a thread's own memory
  const unsigned thread = this_thread->rank;
  // One back: into the call rather than after it.
  const uint32_t counter =
      static_cast<uint32_t>(static_cast<const char *>(return_address) - 1 - checker.library_base);
  const Attempt now = {
      kind, address, space, {thread}, Access(checker.now, thread, kind == Kind::Atomic, counter)};
  if (kind == Kind::Atomic) drop_pending(address, now.me);
  Cell *last = shadow->last(address, bytes);
  for (Cell *cell = shadow->first(address); cell <= last; cell++) {
    check_cell(*cell, now);
  }
}

void watch_buffer(const char *start, size_t bytes, unsigned cell_bytes) {
  const auto place = std::find_if(buffers.begin(), buffers.end(),
                                  [&](const Shadow &shadow) { return shadow.start() > start; });
  buffers.emplace(place, start, bytes, std::clamp(cell_bytes, 1u, 16u));
}

void forget_buffer(const char *start) {
  const auto found = std::find_if(buffers.begin(), buffers.end(),
                                  [&](const Shadow &shadow) { return shadow.start() == start; });
  if (found != buffers.end()) buffers.erase(found);
}

void launch_begins(const Launch &launch) {
  Dl_info library = {};
  dladdr(reinterpret_cast<const void *>(launch.entry->invoke), &library);
  checker.library = library.dli_fname;
  checker.library_base = static_cast<const char *>(library.dli_fbase);
  checker.launch_start = ++checker.now;
  checker.threads = launch.threads();
  checker.blocks.clear();
  checker.published.assign(launch.blocks() * launch.threads(), 0);
  checker.dynamic_shared_bytes = launch.dynamic_shared;
  shared_memory.clear();
}

void launch_ends() { diagnose_pending(); }

void block_begins(const char *shared, size_t shared_bytes) {
  if (shared_memory.empty()) {
    shared_memory.emplace_back(shared, shared_bytes, 1);
    const char *dynamic = static_cast<const char *>(this_block.dynamic_shared);
    if (dynamic != nullptr) {
      shared_memory.emplace_back(dynamic, checker.dynamic_shared_bytes, 1);
    }
  }
  diagnose_pending();
  checker.block_start = checker.epoch_start = ++checker.now;
  checker.blocks.push_back({checker.block_start, 0, nullptr});
  checker.first_global_atomic = 0;
  checker.warps_with_global_atomics = 0;
  memset(checker.last_atomic_of_warp, 0, sizeof checker.last_atomic_of_warp);
  memset(checker.joined, 0, sizeof checker.joined[0] * ((checker.threads + WARP - 1) / WARP));
}

void barrier_released() { checker.epoch_start = ++checker.now; }

void warp_synchronised(unsigned warp, unsigned lanes) {
  uint64_t (&joined)[WARP][WARP] = checker.joined[warp];
  const uint64_t now = ++checker.now;
  uint64_t known[WARP] = {};  // what any of the lanes knew of each lane
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) == 0) continue;
    for (unsigned b = 0; b < WARP; b++) known[b] = std::max(known[b], joined[lane][b]);
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) != 0) known[lane] = now;
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) != 0) memcpy(joined[lane], known, sizeof known);
  }
}

void thread_fenced() {
  const Me me = {this_thread->rank};
  const uint64_t now = ++checker.now;
  BlockRecord &block = checker.blocks.back();
  block.published = checker.epoch_start;
  uint64_t *published = &checker.published[(checker.blocks.size() - 1) * checker.threads];
  published[me.thread] = now;
  const unsigned first = me.warp() * WARP;
  for (unsigned b = 0; b < WARP && first + b < checker.threads; b++) {
    const uint64_t joined = checker.joined[me.warp()][me.lane()][b];
    published[first + b] = std::max(published[first + b], joined);
  }
}

void atomic_accessed(const void *address, size_t bytes, const void *return_address) {
  const char *place = static_cast<const char *>(address);
  access_memory(address, bytes, Kind::Atomic, return_address);
  const unsigned warp = this_thread->rank / WARP;
  const uint64_t now = ++checker.now;
  checker.blocks.back().last_atomic = place;
  checker.last_atomic_of_warp[warp] = now;
  if (find_shared(place) != nullptr) return;  // reaches no other block
  if (checker.first_global_atomic == 0) checker.first_global_atomic = now;
  checker.warps_with_global_atomics |= 1u << warp;
}

}  // namespace hazards
}  // namespace cudaemu
