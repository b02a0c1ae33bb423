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
// Two atomic operations never conflict. Shuffles order nothing, as on the GPU. The findings hardly
// depend on the schedule, since it is the missing order that is found and not its effect. Not
// modelled: locks.
#include "hazards.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <vector>

#include "diagnostics.h"

namespace cudaemu {
namespace hazards {
namespace {

enum class Space { Shared, Global };

// Tick, thread and the atomic flag in one word. Zero: no access.
class Access {
 public:
  Access() = default;
  Access(uint64_t tick, unsigned thread, bool atomic)
      : bits_(tick << 11 | static_cast<uint64_t>(thread) << 1 | (atomic ? 1 : 0)) {}

  bool none() const { return bits_ == 0; }
  bool atomic() const { return (bits_ & 1) != 0; }
  unsigned thread() const { return static_cast<unsigned>(bits_ >> 1 & (MAX_THREADS - 1)); }
  uint64_t tick() const { return bits_ >> 11; }

 private:
  uint64_t bits_ = 0;
};

struct Place {
  Access access;
  uint32_t counter = 0;  // where in the kernel's library
};

// What is remembered of one cell of memory. "other" is an access by another thread than the latest:
// a thread never conflicts with itself, and must not hide the one with which it does.
struct Cell {
  Access write, other_write, read, other_read;
  uint32_t write_counter, other_write_counter, read_counter, other_read_counter;
};

// Cells for a range of memory. Those of a large input are mostly untouched, hence not a vector:
// calloc takes fresh pages of zeros, and an all-zero cell is an empty one.
class Shadow {
 public:
  Shadow(const char *start, size_t bytes, unsigned cell_bytes)
      : start_(start), bytes_(bytes), cell_bytes_(cell_bytes) {
    cells_ = static_cast<Cell *>(calloc(bytes / cell_bytes + 1, sizeof(Cell)));
    if (cells_ == nullptr) throw std::bad_alloc();
  }
  Shadow(Shadow &&other) noexcept { swap(other); }
  Shadow &operator=(Shadow &&other) noexcept {
    swap(other);
    return *this;
  }
  ~Shadow() { free(cells_); }

  const char *start() const { return start_; }
  bool contains(const char *address) const {
    return static_cast<size_t>(address - start_) < bytes_;
  }
  Cell *first(const char *address) const { return cells_ + (address - start_) / cell_bytes_; }
  Cell *last(const char *address, size_t bytes) const {
    const size_t end = std::min(static_cast<size_t>(address - start_) + bytes, bytes_);
    return cells_ + (end - 1) / cell_bytes_;
  }

 private:
  void swap(Shadow &other) {
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
    std::swap(cell_bytes_, other.cell_bytes_);
    std::swap(cells_, other.cells_);
  }

  const char *start_ = nullptr;
  size_t bytes_ = 0;
  size_t cell_bytes_ = 1;
  Cell *cells_ = nullptr;
};

struct BlockRecord {
  uint64_t start;
  // Accesses of any of its threads before this tick were followed by a barrier and then a fence.
  uint64_t published;
  const char *last_atomic;  // the address
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
  const char *dynamic_shared = nullptr;
  size_t dynamic_shared_bytes = 0;
  // joined[a][b]: what lane b did before this tick comes before what lane a does now.
  uint64_t joined[MAX_THREADS / WARP][WARP][WARP];
};

Checker checker;
std::vector<Shadow> buffers;  // sorted by address
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

void report(Kind kind, Kind earlier_kind, Access earlier, uint32_t earlier_counter, Me me,
            uint32_t counter, Space space, const char *missing) {
  char key[64];
  snprintf(key, sizeof key, "%x %x %d", counter, earlier_counter, static_cast<int>(kind));
  const std::string line =
      token(counter) + ": hazard in " + (space == Space::Shared ? "shared" : "global") +
      " memory: " + did(kind) + " by thread " +
      std::to_string(me.thread) + " after " + did(earlier_kind) + " by " +
      describe_thread(earlier) + " at " + token(earlier_counter) + ", " + missing + " (block " +
      std::to_string(running_block->number()) + ")";
  diagnose_line(key, line);
}

// How far from the thread at hand an access was made. The farther, the harder to put in order: of
// two earlier accesses the farther one is worth remembering.
unsigned distance(Access access, Me me) {
  if (access.none() || access.tick() < checker.launch_start) return 0;
  if (!in_this_block(access)) return 4;
  if (access.tick() < checker.epoch_start) return 1;
  return access.thread() / WARP == me.warp() ? 2 : 3;
}

void remember(Access access, uint32_t counter, Me me, Access &latest, uint32_t &latest_counter,
              Access &other, uint32_t &other_counter) {
  const bool own = !latest.none() && in_this_block(latest) && latest.thread() == me.thread;
  if (!own && distance(latest, me) >= distance(other, me)) {
    other = latest;
    other_counter = latest_counter;
  }
  latest = access;
  latest_counter = counter;
}

// An arrival counter may be reset by plain assignment: this thread's atomic operation on it comes
// after those of all others, since it was the last thing that the other block did atomically. An
// accumulator differs in that its users go on to an atomic operation elsewhere.
bool is_arrival_counter(const Cell &cell, const char *address, Me me, Space space) {
  if (!cell.write.atomic() || !cell.other_write.atomic()) return false;
  if (cell.other_write.tick() < checker.launch_start) return false;
  const BlockRecord &other = checker.blocks[ordinal_of_block(cell.other_write.tick())];
  return other.last_atomic == address && what_is_missing(cell.write, me, space) == nullptr;
}

void check_cell(Cell &cell, Kind kind, Me me, uint32_t counter, const char *address,
                Space space) {
  const auto check = [&](Kind earlier_kind, Access earlier, uint32_t earlier_counter) {
    if (kind == Kind::Atomic && earlier.atomic()) return;
    const char *missing = what_is_missing(earlier, me, space);
    if (missing == nullptr) return;
    if (earlier_kind == Kind::Read && !in_this_block(earlier)) missing = "unordered blocks";
    report(kind, earlier.atomic() ? Kind::Atomic : earlier_kind, earlier, earlier_counter, me,
           counter, space, missing);
  };
  check(Kind::Write, cell.write, cell.write_counter);
  if (!is_arrival_counter(cell, address, me, space)) {
    check(Kind::Write, cell.other_write, cell.other_write_counter);
  }
  if (kind != Kind::Read) {
    check(Kind::Read, cell.read, cell.read_counter);
    check(Kind::Read, cell.other_read, cell.other_read_counter);
  }

  const Access access(checker.now, me.thread, kind == Kind::Atomic);
  if (kind == Kind::Read) {
    remember(access, counter, me, cell.read, cell.read_counter, cell.other_read,
             cell.other_read_counter);
  } else if (kind == Kind::Atomic) {
    remember(access, counter, me, cell.write, cell.write_counter, cell.other_write,
             cell.other_write_counter);
  } else {
    cell = {access, {}, {}, {}, counter, 0, 0, 0};
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
  const Me me = {this_thread->rank};
  // One back: into the call rather than after it.
  const uint32_t counter = static_cast<uint32_t>(static_cast<const char *>(return_address) - 1 -
                                                 checker.library_base);
  Cell *last = shadow->last(address, bytes);
  for (Cell *cell = shadow->first(address); cell <= last; cell++) {
    check_cell(*cell, kind, me, counter, address, space);
  }
}

void watch_buffer(const char *start, size_t bytes, unsigned cell_bytes) {
  const auto place = std::find_if(buffers.begin(), buffers.end(), [&](const Shadow &shadow) {
    return shadow.start() > start;
  });
  buffers.emplace(place, start, bytes, std::clamp(cell_bytes, 1u, 16u));
}

void forget_buffer(const char *start) {
  const auto found = std::find_if(buffers.begin(), buffers.end(), [&](const Shadow &shadow) {
    return shadow.start() == start;
  });
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

void block_begins(const Block &, const char *shared, size_t shared_bytes) {
  if (shared_memory.empty()) {
    shared_memory.emplace_back(shared, shared_bytes, 1);
    const char *dynamic = static_cast<const char *>(this_block.dynamic_shared);
    if (dynamic != nullptr) {
      shared_memory.emplace_back(dynamic, checker.dynamic_shared_bytes, 1);
    }
  }
  checker.block_start = checker.epoch_start = ++checker.now;
  checker.blocks.push_back({checker.block_start, 0, nullptr});
  checker.first_global_atomic = 0;
  checker.warps_with_global_atomics = 0;
  memset(checker.last_atomic_of_warp, 0, sizeof checker.last_atomic_of_warp);
  memset(checker.joined, 0, sizeof checker.joined[0] * ((checker.threads + WARP - 1) / WARP));
}

void barrier_released() { checker.epoch_start = ++checker.now; }

void warp_synchronised(unsigned warp, unsigned lanes) {
  uint64_t(&joined)[WARP][WARP] = checker.joined[warp];
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
