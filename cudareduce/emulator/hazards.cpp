// The hazard checker: does something order every two accesses to one place, unless both only read?
//
// The hooks in hazard_hooks.cpp say what the kernel accesses, the runtime what it waits for, and
// hazard_order.h what orders two accesses.
//
// Two atomic operations never conflict. Nor does a plain read with others' atomic operations if the
// same thread goes on to a compare-and-swap there, which finds out if the value has changed. That
// shows later only, so such a finding waits until the end of the block. The findings hardly depend
// on the schedule, since it is the missing order that is found and not its effect.
#include "hazards.h"

#include <dlfcn.h>
#include <stdio.h>

#include <algorithm>
#include <string>
#include <vector>

#include "diagnostics.h"
#include "hazard_order.h"
#include "hazard_shadow.h"

namespace cudaemu {
namespace hazards {
namespace {

// A finding about a read that may yet turn out to be the start of a compare-and-swap.
struct Pending {
  unsigned reader;
  const char *address;
  std::string key;
  std::string line;
};

// The state of the launch at hand.
struct Checker {
  const char *library = nullptr;
  const char *library_base = nullptr;
  size_t dynamic_shared_bytes = 0;
  std::vector<Pending> pending;  // of the block at hand
};

Timeline timeline;
Checker checker;
std::vector<Shadow> buffers;        // sorted by address
std::vector<Shadow> shared_memory;  // static, and dynamic if there is any

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
  if (timeline.in_this_block(access)) return thread;
  return "block " + std::to_string(timeline.block_of(access)) + ", " + thread;
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
  const bool same_block = timeline.in_this_block(earlier);
  if (now.kind == Kind::Read && earlier_kind == Kind::Atomic) {
    checker.pending.push_back({now.me.thread, now.address, key, line});
  } else if (now.kind == Kind::Atomic && earlier_kind == Kind::Read && same_block) {
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
  return !access.none() && timeline.in_this_block(access) && access.thread() == me.thread;
}

// How far from the thread at hand an access was made. The farther, the harder to put in order: of
// two earlier accesses the farther one is worth remembering.
unsigned distance(Access access, Me me) {
  if (access.none() || !timeline.in_this_launch(access)) return 0;
  if (!timeline.in_this_block(access)) return 4;
  if (!timeline.since_last_barrier(access)) return 1;
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
  if (!timeline.in_this_launch(cell.other_write)) return false;
  return timeline.last_atomic_of_block(cell.other_write) == now.address &&
         timeline.what_is_missing(cell.write, now.me, now.space) == nullptr;
}

void check_cell(Cell &cell, const Attempt &now) {
  const auto check = [&](Kind earlier_kind, Access earlier) {
    if (now.kind == Kind::Atomic && earlier.atomic()) return;
    const char *missing = timeline.what_is_missing(earlier, now.me, now.space);
    if (missing == nullptr) return;
    const bool same_block = timeline.in_this_block(earlier);
    if (earlier_kind == Kind::Read && !same_block) missing = "unordered blocks";
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
  const Access access(timeline.now(), thread, kind == Kind::Atomic, counter);
  const Attempt now = {kind, address, space, {thread}, access};
  if (kind == Kind::Atomic) drop_pending(address, now.me);
  Cell *last = shadow->last(address, bytes);
  for (Cell *cell = shadow->first(address); cell <= last; cell++) {
    check_cell(*cell, now);
  }
}

void watch_buffer(const char *start, size_t bytes, unsigned cell_bytes) {
  const auto place = std::find_if(buffers.begin(), buffers.end(),
                                  [&](const Shadow &shadow) { return shadow.start() > start; });
  buffers.emplace(place, start, bytes, std::min(cell_bytes, 16u));
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
  checker.dynamic_shared_bytes = launch.dynamic_shared;
  shared_memory.clear();
  timeline.launch_begins(launch.threads());
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
  timeline.block_begins();
}

void barrier_released() { timeline.barrier_released(); }

void warp_synchronised(unsigned warp, unsigned lanes) { timeline.warp_synchronised(warp, lanes); }

void thread_fenced(Scope scope) { timeline.thread_fenced({this_thread->rank}, scope); }

void atomic_accessed(const void *pointer, size_t bytes, const void *return_address) {
  access_memory(pointer, bytes, Kind::Atomic, return_address);
  const char *address = static_cast<const char *>(pointer);
  const Space space = find_shared(address) != nullptr ? Space::Shared : Space::Global;
  timeline.atomic_done({this_thread->rank}, address, space);
}

}  // namespace hazards
}  // namespace cudaemu
