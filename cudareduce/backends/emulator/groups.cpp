// Functions for the headers in include/: converged lanes and asynchronous copies.
#include <time.h>

#include <deque>
#include <map>

#include "block.h"
#include "diagnostics.h"
#include "races.h"

namespace cudaemu {
namespace {

// The lanes of one warp that wait until the other lanes reach the same call, exit, or wait elsewhere.
struct Gathering {
  unsigned here = 0;
  Site at[WARP] = {};
  unsigned together[WARP] = {};  // result for each lane that may continue: the mask of its group
};

struct Copies {
  unsigned batch = 0;  // number of the batch that is not committed
  std::deque<std::pair<unsigned, Copy>> left;  // pending copies, each with its batch
};

// Keys are the block number with the warp or thread; empty entries are removed.
thread_local std::map<std::pair<uint64_t, unsigned>, Gathering> gatherings;
thread_local std::map<std::pair<uint64_t, unsigned>, Copies> copies;

// Lanes stop waiting for the others after this many turns, since one of those may poll for them.
constexpr int MAX_TURNS = 256;

bool same_place(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || __builtin_strcmp(a.file, b.file) == 0);
}

void release_lanes(Gathering &all, Site at, bool promised) {
  unsigned group = 0;
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((all.here >> lane & 1) != 0 && same_place(all.at[lane], at)) group |= 1u << lane;
  }
  // In a divergent branch CUDA guarantees only that the mask contains the calling lane.
  unsigned first = group;
  const bool diverged = !promised && group != running_block->not_returned() && (group & (group - 1)) != 0;
  if (diverged && running_block->order() == Order::Random) {
    first = group & running_block->random();
    note(describe_site(at) + ": the active lanes of a branch may be any part of those that take it");
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((group >> lane & 1) != 0) all.together[lane] = (first >> lane & 1) != 0 ? first : group & ~first;
  }
  all.here &= ~group;
}

Copies &own_copies() { return copies[{running_block->number(), this_thread->rank}]; }

}  // namespace

unsigned converged_lanes(Site at, bool promised) {
  const unsigned lane = this_thread->rank % WARP, own = 1u << lane;
  const auto key = std::make_pair(running_block->number(), this_thread->rank / WARP);
  Gathering &all = gatherings[key];
  // The lane's bit is set already only if an earlier launch was abandoned.
  if ((all.here & own) != 0 || all.together[lane] != 0) all = {};
  for (int turns = 0; all.together[lane] == 0; turns++) {
    all.here |= own;
    all.at[lane] = at;
    if ((active_mask() & ~all.here) == 0 || turns == MAX_TURNS) {
      release_lanes(all, at, promised);
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

void copying(bool begins) {
  if (running_block->launch().watched) races::copying(begins);
}

long long nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

}  // namespace cudaemu
