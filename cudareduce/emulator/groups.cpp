// What the headers below include/ ask of the runtime: lanes that come together, asynchronous
// copies, atomic operations on parts of a word.
#include <time.h>

#include <deque>
#include <map>

#include "hazards.h"

namespace cudaemu {
namespace {

// Lanes of one warp that wait for the others to come or to wait elsewhere.
struct Gathering {
  unsigned here = 0;
  Site at[WARP] = {};
  unsigned together[WARP] = {};  // for those who may go on: with whom
};

struct Copies {
  unsigned batch = 0;                          // the one that is open
  std::deque<std::pair<unsigned, Copy>> left;  // by batch
};

// By block of this OS thread, and warp or thread; what is empty is removed.
thread_local std::map<std::pair<uint64_t, unsigned>, Gathering> gatherings;
thread_local std::map<std::pair<uint64_t, unsigned>, Copies> copies;

// A lane that spins for one of those gathered must not be waited for.
constexpr int PATIENCE = 256;

bool same_place(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || __builtin_strcmp(a.file, b.file) == 0);
}

void let_go(Gathering &all, Site at) {
  unsigned group = 0;
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((all.here >> lane & 1) != 0 && same_place(all.at[lane], at)) group |= 1u << lane;
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((group >> lane & 1) != 0) all.together[lane] = group;
  }
  all.here &= ~group;
}

Copies &own_copies() { return copies[{running_block->number(), this_thread->rank}]; }

template <class W>
W begin_part(W *address, const void *return_address) {
  running_block->preempt();
  if (running_block->launch().watched) {
    hazards::atomic_accessed(address, sizeof *address, return_address);
  }
  return __atomic_load_n(address, __ATOMIC_RELAXED);
}

template <class W>
W exchange_part(W *address, W expected, W desired) {
  __atomic_compare_exchange_n(address, &expected, desired, false, __ATOMIC_RELAXED,
                              __ATOMIC_RELAXED);
  return expected;  // what was found
}

template <class W>
W load(const W *address, const void *return_address) {
  return begin_part(const_cast<W *>(address), return_address);
}

template <class W>
void store(W *address, W value, const void *return_address) {
  begin_part(address, return_address);
  __atomic_store_n(address, value, __ATOMIC_RELAXED);
}

}  // namespace

uint32_t atomic_load(const uint32_t *address) { return load(address, __builtin_return_address(0)); }
uint64_t atomic_load(const uint64_t *address) { return load(address, __builtin_return_address(0)); }
void atomic_store(uint32_t *address, uint32_t value) {
  store(address, value, __builtin_return_address(0));
}
void atomic_store(uint64_t *address, uint64_t value) {
  store(address, value, __builtin_return_address(0));
}
__attribute__((weak)) void grid_barrier(Site at) { unsupported("grid.sync()", at); }

uint8_t begin_atomic(uint8_t *address) { return begin_part(address, __builtin_return_address(0)); }
uint16_t begin_atomic(uint16_t *address) {
  return begin_part(address, __builtin_return_address(0));
}
uint8_t compare_and_swap(uint8_t *address, uint8_t expected, uint8_t desired) {
  return exchange_part(address, expected, desired);
}
uint16_t compare_and_swap(uint16_t *address, uint16_t expected, uint16_t desired) {
  return exchange_part(address, expected, desired);
}

unsigned converged_lanes(Site at) {
  const unsigned lane = this_thread->rank % WARP, own = 1u << lane;
  const auto key = std::make_pair(running_block->number(), this_thread->rank / WARP);
  Gathering &all = gatherings[key];
  // A lane cannot be here already, but for one of a launch that was given up.
  if ((all.here & own) != 0 || all.together[lane] != 0) all = {};
  for (int turns = 0; all.together[lane] == 0; turns++) {
    all.here |= own;
    all.at[lane] = at;
    if ((active_mask() & ~all.here) == 0 || turns == PATIENCE) {
      let_go(all, at);
    } else {
      yield();
    }
  }
  const unsigned together = all.together[lane];
  all.together[lane] = 0;
  bool empty = all.here == 0;
  for (const unsigned others : all.together) empty &= others == 0;
  if (empty) gatherings.erase(key);
  return together;
}

void forget_copies() {
  if (!copies.empty()) copies.erase({running_block->number(), this_thread->rank});
}

void remember_copy(const Copy &copy) {
  Copies &own = own_copies();
  own.left.push_back({own.batch, copy});
}

void close_batch() { own_copies().batch++; }

bool take_copy(Copy *copy, unsigned newest, const void *owner) {
  const auto found = copies.find({running_block->number(), this_thread->rank});
  if (found == copies.end()) return false;
  Copies &own = found->second;
  for (auto each = own.left.begin(); each != own.left.end(); ++each) {
    if (each->second.owner != owner) continue;
    if (owner == nullptr && each->first + newest >= own.batch) continue;
    *copy = each->second;
    own.left.erase(each);
    return true;
  }
  return false;
}

long long nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

}  // namespace cudaemu
