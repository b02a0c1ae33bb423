// The hazard checker: does something order every two accesses to one place, unless both only read?
//
// The hooks in hazard_hooks.cpp say what the kernel accesses, the runtime what it waits for, and
// hazard_order.h what orders two accesses.
//
// Two atomic operations never conflict. Nor does a plain read with others' atomic operations if a
// thread goes on from there to one on the same place: a compare-and-swap finds out if the value has
// changed, and who need not even try, as its value is no maximum, is shown older values as well, and
// so found out by its answer. That shows later only, so such a finding waits until the end of the
// launch. Nor do two stores of one value: of those of a warp to one place CUDA performs one, whichever
// it is, and so it does not matter which of others comes last. That shows when the store is done, at
// the thread's next step. The findings hardly depend on the schedule, since it is the
// missing order that is found and not its effect.
#include "hazards.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "diagnostics.h"
#include "hazard_order.h"
#include "hazard_shadow.h"
#include "hazard_values.h"

namespace cudaemu {
namespace hazards {
namespace {

// A finding about a read that may yet turn out to be the start of an atomic operation, or one look of
// many at what another thread is to change.
struct Pending {
  Access reader;
  const char *address;
  Space space;
  bool polls;
  std::string key;
  std::string line;
};

// Where a thread has read something last, by place in the kernel's library.
struct Look {
  const char *address = nullptr;
  uint32_t counter = 0;
};

}  // namespace

struct WatchedBlock {
  BlockOrder order;
  Look looks[MAX_THREADS][2];  // the last two of each thread
  std::vector<Shadow> shared;  // static, and dynamic if there is any
  bool has_read = false;       // some of the input
};

namespace {

struct Attempt {
  Manner manner;
  const char *address;
  Space space;
  Me me;
  Access access;
};

// A store over another one that nothing orders, and what stood there before.
struct Overwrite {
  Attempt now;
  Access earlier;
  const char *missing;
  const char *place;
  std::string before;
};

// The state of the launch at hand.
struct Checker {
  const char *library = nullptr;
  const char *library_base = nullptr;
  WatchedBlock *block = nullptr;
  std::vector<Pending> pending;
  std::set<uint32_t> starts;  // from where a thread has read what it then changes by an atomic operation
  std::vector<Overwrite> overwrites;  // of the store that is made now
  uint64_t looks = 0;  // since a value has changed
  const void *input = nullptr;  // what the first argument points to
  uint32_t readers = 0;         // blocks that have read some of it
};

// Looks by all threads together without any change after which nothing will ever change.
constexpr uint64_t LOOKS_IN_VAIN = 1'000'000;
// From so many bytes of variables they are watched four at a time.
constexpr size_t LARGE = 1 << 20;

Timeline timeline;
Values values;
Checker checker;
std::vector<Shadow> buffers;    // sorted by address
std::vector<Shadow> variables;  // of the kernel's library

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
  return "block " + std::to_string(access.block()) + ", " + thread;
}

void report(const Attempt &now, Kind earlier_kind, Access earlier, const char *missing) {
  const Kind kind = now.manner.kind;
  char key[64];
  snprintf(key, sizeof key, "%x %x %d", now.access.counter(), earlier.counter(),
           static_cast<int>(kind));
  const std::string place = token(now.access.counter()) + ": hazard in " +
                            (now.space == Space::Shared ? "shared" : "global") + " memory: ";
  const std::string line = place + did(kind) + " by thread " + std::to_string(now.me.thread) +
                           " after " + did(earlier_kind) + " by " + describe_thread(earlier) +
                           " at " + token(earlier.counter()) + ", " + missing + " (block " +
                           std::to_string(timeline.block()) + ")";
  const bool polls = now.manner.strong && earlier.strong();
  if (kind == Kind::Read && (polls || earlier_kind == Kind::Atomic)) {
    checker.pending.push_back({now.access, now.address, now.space, polls, key, line});
  } else if (earlier_kind == Kind::Read && (polls || kind == Kind::Atomic)) {
    checker.pending.push_back({earlier, now.address, now.space, polls, key, line});
  } else {
    diagnose_line(key, line);
  }
}

// The store that was being made is done.
void stored() {
  for (const Overwrite &over : checker.overwrites) {
    if (memcmp(over.place, over.before.data(), over.before.size()) == 0) continue;
    report(over.now, Kind::Write, over.earlier, over.missing);
  }
  checker.overwrites.clear();
}

// What this thread has just read here was the start of an atomic operation.
void note_starts(const char *address, unsigned thread) {
  for (const Look &look : checker.block->looks[thread]) {
    if (look.address == address) checker.starts.insert(look.counter);
  }
}

bool is_own(Access access, const Attempt &now) {
  return !access.none() && timeline.in_this_block(access) && access.thread() == now.me.thread;
}

// How far from the thread at hand an access was made. The farther, the harder to put in order: of
// two earlier accesses the farther one is worth remembering.
unsigned distance(Access access, Me me) {
  if (access.none() || !timeline.in_this_launch(access)) return 0;
  if (!timeline.in_this_block(access)) return 4;
  if (!timeline.since_last_barrier(access)) return 1;
  return access.thread() / WARP == me.warp() ? 2 : 3;
}

void remember(const Attempt &now, Latest &latest) {
  if (!is_own(latest.one, now) && distance(latest.one, now.me) >= distance(latest.other, now.me)) {
    latest.other = latest.one;
  }
  latest.one = now.access;
}

// An arrival counter may be reset by plain assignment: this thread's atomic operation on it comes
// after those of all others, since it was the last thing that the other block did atomically. An
// accumulator differs in that its users go on to an atomic operation elsewhere.
bool is_arrival_counter(const Latest &strong_write, const Attempt &now) {
  const auto &[one, other] = strong_write;
  if (!one.atomic() || !other.atomic() || !timeline.in_this_launch(other)) return false;
  return timeline.last_atomic_of_block(other) == now.address &&
         timeline.what_is_missing(one, now.me, now.space) == nullptr;
}

// Strong accesses need no order among themselves, unless one reaches its own block alone, or they
// take the place of barriers in a block: lanes of a warp that go in step on an old GPU.
bool excuse(const Attempt &now, Access earlier) {
  if (!now.manner.strong || !earlier.strong()) return false;
  const bool both_atomic = now.access.atomic() && earlier.atomic();
  const bool same_warp =
      timeline.in_this_block(earlier) && earlier.thread() / WARP == now.me.warp();
  if (now.space == Space::Shared || same_warp) return both_atomic;
  const bool too_narrow = now.access.block_only() || earlier.block_only();
  return !too_narrow || timeline.in_this_block(earlier);
}

// `place` are the bytes of the cell that are accessed.
void check_cell(Cell &cell, const Attempt &now, std::string_view place) {
  const auto check = [&](Kind earlier_kind, Access earlier) {
    if (earlier.none() || excuse(now, earlier)) return;
    const char *missing = timeline.what_is_missing(earlier, now.me, now.space);
    if (missing == nullptr) return;
    const bool same_block = timeline.in_this_block(earlier);
    if (earlier_kind == Kind::Read && !same_block) missing = "unordered blocks";
    if (now.access.block_only() || earlier.block_only()) {
      missing = "atomic operations of a block are none to other blocks";
    }
    const bool stores = now.manner.kind == Kind::Write && earlier_kind == Kind::Write;
    if (stores && !now.access.atomic() && !earlier.atomic()) {
      checker.overwrites.push_back({now, earlier, missing, place.data(), std::string(place)});
      return;
    }
    report(now, earlier.atomic() ? Kind::Atomic : earlier_kind, earlier, missing);
  };
  const auto check_both = [&](Kind earlier_kind, const Latest &earlier) {
    check(earlier_kind, earlier.one);
    check(earlier_kind, earlier.other);
  };
  const Kind kind = now.manner.kind;
  check_both(Kind::Write, cell.write);
  check(Kind::Write, cell.strong_write.one);
  if (!is_arrival_counter(cell.strong_write, now)) check(Kind::Write, cell.strong_write.other);
  if (kind != Kind::Read) {
    check_both(Kind::Read, cell.read);
    check_both(Kind::Read, cell.strong_read);
  }
  if (kind == Kind::Read) {
    remember(now, now.manner.strong ? cell.strong_read : cell.read);
  } else if (now.manner.strong) {
    for (Latest *read : {&cell.read, &cell.strong_read}) {
      if (kind == Kind::Atomic && is_own(read->one, now)) read->one = {};
      if (kind == Kind::Atomic && is_own(read->other, now)) read->other = {};
    }
    remember(now, cell.strong_write);
  } else {
    cell = {};
    cell.write.one = now.access;
  }
}

const Shadow *find_in(const std::vector<Shadow> &shadows, const char *address) {
  for (const Shadow &shadow : shadows) {
    if (shadow.contains(address)) return &shadow;
  }
  return nullptr;
}

const Shadow *find_buffer(const char *address) {
  const auto after = std::upper_bound(
      buffers.begin(), buffers.end(), address,
      [](const char *wanted, const Shadow &shadow) { return wanted < shadow.start(); });
  if (after != buffers.begin() && (after - 1)->contains(address)) return &*(after - 1);
  return find_in(variables, address);
}

// One back: into the call rather than after it.
uint32_t counter_of(const void *return_address) {
  return static_cast<uint32_t>(static_cast<const char *>(return_address) - 1 -
                               checker.library_base);
}

void check_cells(const Shadow &shadow, size_t bytes, const Attempt &now) {
  Cell *last = shadow.last(now.address, bytes);
  for (Cell *cell = shadow.first(now.address); cell <= last; cell++) {
    const char *from = std::max(shadow.place(cell), now.address);
    const char *to = std::min(shadow.place(cell + 1), now.address + bytes);
    check_cell(*cell, now, {from, static_cast<size_t>(to - from)});
  }
}

// A thread looks at what another one may change; if nobody ever does, it looks for ever.
void look() {
  if (++checker.looks > LOOKS_IN_VAIN) {
    diagnose_line("waits", std::string(running_block->launch().entry->name) +
                               ": it hangs: every thread waits for a value that none changes");
    running_block->abandon();
  }
  running_block->polled();
}

}  // namespace

void Forget::operator()(WatchedBlock *block) const { delete block; }

void access_memory(const void *pointer, size_t bytes, Manner manner, const void *return_address) {
  if (this_thread == nullptr) return;
  stored();
  const char *address = static_cast<const char *>(pointer);
  const Shadow *shadow = find_in(checker.block->shared, address);
  const Space space = shadow != nullptr ? Space::Shared : Space::Global;
  if (shadow == nullptr) shadow = find_buffer(address);
  if (shadow != nullptr && manner.kind == Kind::Write) {
    checker.looks = 0;
  } else if (shadow != nullptr && manner.strong) {
    look();
  }
  values.restore();  // when all others have run that do before this access
  if (shadow == nullptr) return;  // a thread's own memory
  if (shadow->start() == checker.input && manner.kind == Kind::Read && !checker.block->has_read) {
    checker.block->has_read = true;
    checker.readers++;
  }
  const Me me = {this_thread->rank};
  const uint32_t counter = counter_of(return_address);
  const uint64_t now = timeline.now();
  if (manner.kind == Kind::Read && (manner.strong || checker.starts.count(counter))) {
    const bool older = values.show_older(address, bytes, space, me, counter, timeline);
    if (manner.strong) timeline.load(me, address, space, older);
  }
  if (manner.kind == Kind::Read) {
    Look (&looks)[2] = checker.block->looks[me.thread];
    looks[1] = looks[0];
    looks[0] = {address, counter};
  }
  const Access access(now, timeline.block(), me.thread, manner, counter);
  check_cells(*shadow, bytes, {manner, address, space, me, access});
  if (manner.strong && manner.kind == Kind::Write) {
    values.changes(address, bytes, space, access);
    timeline.store(me, address, space);
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

void launch_begins(const Launch &launch, const Segments &segments) {
  Dl_info library = {};
  dladdr(reinterpret_cast<const void *>(launch.entry->invoke), &library);
  checker.library = library.dli_fname;
  checker.library_base = static_cast<const char *>(library.dli_fbase);
  checker.looks = 0;
  checker.starts.clear();
  const bool has_input = launch.entry->parameters != 0;
  checker.input = has_input ? *static_cast<void **>(launch.arguments[0]) : nullptr;
  checker.readers = 0;
  variables.clear();
  for (const Segment &segment : segments.variables) {
    variables.emplace_back(segment.start, segment.bytes, segment.bytes > LARGE ? 4 : 1);
  }
  timeline.launch_begins(launch.threads());
  values.launch_begins();
}

void launch_ends() {
  values.restore();
  for (const Pending &finding : checker.pending) {
    const bool polled =
        finding.polls && values.was_polled(finding.address, finding.space, finding.reader);
    const bool starts = checker.starts.count(finding.reader.counter()) != 0;
    if (!polled && !starts) diagnose_line(finding.key, finding.line);
  }
  checker.pending.clear();
}

uint32_t readers() { return checker.readers; }

WatchedBlockPointer begin_block(uint64_t number, Segment shared, Segment dynamic_shared) {
  WatchedBlockPointer block(new WatchedBlock);
  for (const Segment &memory : {shared, dynamic_shared}) {
    if (memory.bytes != 0) block->shared.emplace_back(memory.start, memory.bytes, 1);
  }
  timeline.block_begins(block->order, static_cast<uint32_t>(number));
  checker.block = block.get();
  return block;
}

void leave_block() {
  stored();
  values.restore();
}

void enter_block(WatchedBlock &block) {
  timeline.block_goes_on(block.order);
  checker.block = &block;
}

void barrier_released() { timeline.barrier_released(); }

void warp_synchronised(unsigned warp, unsigned lanes) { timeline.warp_synchronised(warp, lanes); }

void thread_fenced(Scope scope) { timeline.thread_fenced({this_thread->rank}, scope); }

void atomic_accessed(const void *pointer, size_t bytes, Scope scope, const void *return_address) {
  stored();
  const char *address = static_cast<const char *>(pointer);
  look();
  values.restore();
  const Shadow *shadow = find_in(checker.block->shared, address);
  const Space space = shadow != nullptr ? Space::Shared : Space::Global;
  if (shadow == nullptr) shadow = find_buffer(address);
  const Me me = {this_thread->rank};
  const Manner manner = {Kind::Atomic, true, scope == Scope::Block, true};
  const Access access(timeline.now(), timeline.block(), me.thread, manner,
                      counter_of(return_address));
  note_starts(address, me.thread);
  timeline.atomic(me, address, space, scope);
  if (shadow != nullptr) check_cells(*shadow, bytes, {manner, address, space, me, access});
  values.changes(address, bytes, space, access);
}

void value_changed() { checker.looks = 0; }

}  // namespace hazards
}  // namespace cudaemu
