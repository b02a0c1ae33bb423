// Data race detection: two accesses to one address, of which at least one writes, must be ordered.
//
// race_hooks.cpp reports the accesses of a kernel, the rest of the runtime reports synchronisation, and
// happens_before.h decides which accesses are ordered. The check looks for missing order, not for its
// effect, so the result hardly depends on the schedule.
//
// Exceptions: two atomic operations never race. A plain read does not race with atomic operations of
// other threads if its thread continues with an atomic operation on the same address: a
// compare-and-swap detects a change, and a maximum that skips hopeless updates is run with stale
// values too (stale_values.h). Two stores of the same value do not race. The first is known at the end
// of the launch, the second at the thread's next step, so such findings wait until then.
#include "races.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "diagnostics.h"
#include "happens_before.h"
#include "shadow_memory.h"
#include "stale_values.h"

namespace cudaemu {
namespace races {
namespace {

// A race between two source lines of the kernel. Of all its pairs of threads the one farthest apart is
// kept, since that decides which barrier is missing.
struct Race {
  Missing missing;
  std::string line;
};

// A race with a read that may later turn out to belong to an atomic operation or a polling loop.
struct Pending {
  Access reader;
  const char *address;
  Space space;
  bool polls;
  std::string key;
  Race race;
};

// The addresses and source lines of a thread's last reads.
struct LastRead {
  const char *address = nullptr;
  uint32_t counter = 0;
};

}  // namespace

struct WatchedBlock {
  BlockClock clock;
  LastRead last_reads[MAX_THREADS][2];
  std::vector<Shadow> shared;  // of static shared memory, and of dynamic if there is any
};

namespace {

struct Attempt {
  Manner manner;
  const char *address;
  Space space;
  Me me;
  Access access;
};

// A store over an unordered earlier store, and the bytes before it.
struct Overwrite {
  Attempt now;
  Access earlier;
  Missing missing;
  const char *address;
  std::string before;
};

// A read-modify-write operation between its read and its write.
struct Update {
  const char *address;
  size_t bytes;
  Space space;
  Scope scope;
  Access access;
  char before[16];
};

// The state of the current launch.
struct Checker {
  const char *library = nullptr;
  const char *library_base = nullptr;
  WatchedBlock *block = nullptr;
  std::map<std::string, Race> races;
  std::vector<Pending> pending;
  std::map<uint32_t, std::string> unset;  // reads of shared memory that no thread has written
  std::set<uint32_t> starts;  // code addresses of plain reads that begin an atomic operation
  std::vector<Overwrite> overwrites;  // unordered stores that the current store overwrites
  Update update = {};
  bool copying = false;
  uint64_t polls = 0;            // polling loads since the last write
};

// After this many polling loads of all threads without a write in between, the launch hangs.
constexpr uint64_t MAX_POLLS = 1'000'000;
// Larger variables have shadow cells of 4 bytes.
constexpr size_t LARGE = 1 << 20;

HappensBefore order;
StaleValues values;
Checker checker;
std::vector<Shadow> buffers;    // sorted by address
std::vector<Shadow> variables;  // of the kernel's library

std::string token(uint32_t counter) {
  char text[512];
  snprintf(text, sizeof text, "{%s+0x%x}", checker.library, counter);
  return text;
}

const char *name_of(Kind kind) {
  return kind == Kind::Read ? "read" : kind == Kind::Write ? "write" : "atomic operation";
}

std::string describe_thread(Access access) {
  const std::string thread = "thread " + std::to_string(access.thread());
  if (order.in_this_block(access)) return thread;
  return thread + " of block " + std::to_string(access.block());
}

const char *describe(Missing missing) {
  switch (missing) {
    case Missing::Syncwarp:
      return "no __syncwarp() between them";
    case Missing::Syncthreads:
      return "no __syncthreads() between them";
    case Missing::Fence:
      return "no __threadfence() after it and before an atomic operation";
    case Missing::Acquire:
      return "no acquire by the reader: it needs an atomic operation with acquire order or a fence";
    case Missing::DeviceScope:
      return "an atomic operation of block scope is not atomic to other blocks";
    default:
      return "blocks of a launch are not ordered: use an atomic operation, grid.sync() or a second "
             "launch";
  }
}

// The scope that contains both threads of a race: a warp, a block, the grid.
int reach(Missing missing) {
  return missing == Missing::Syncwarp ? 0 : missing == Missing::Syncthreads ? 1 : 2;
}

void add_race(const std::string &key, const Race &race) {
  const auto [known, is_new] = checker.races.try_emplace(key, race);
  if (!is_new && reach(race.missing) > reach(known->second.missing)) known->second = race;
}

void report(const Attempt &now, Kind earlier_kind, Access earlier, Missing missing) {
  const Kind kind = now.manner.kind;
  char key[64];
  snprintf(key, sizeof key, "%x %x %d", now.access.counter(), earlier.counter(),
           static_cast<int>(kind));
  const bool shared = now.space == Space::Shared;
  const bool refilled = checker.copying && earlier_kind == Kind::Read;
  const std::string line =
      token(now.access.counter()) + ": data race in " + (shared ? "shared" : "global") +
      " memory: " + (refilled ? "asynchronous copy" : name_of(kind)) + " by thread " +
      std::to_string(now.me.thread) + " of block " + std::to_string(order.block()) + " after " +
      name_of(earlier_kind) + " by " + describe_thread(earlier) + " at " +
      token(earlier.counter()) + ", " +
      (refilled ? "the stage is released before it is read" : describe(missing));
  const Race race = {missing, line};
  const bool polls = now.manner.strong && earlier.strong();
  if (kind == Kind::Read && (polls || earlier_kind == Kind::Atomic)) {
    checker.pending.push_back({now.access, now.address, now.space, polls, key, race});
  } else if (earlier_kind == Kind::Read && (polls || kind == Kind::Atomic)) {
    checker.pending.push_back({earlier, now.address, now.space, polls, key, race});
  } else {
    add_race(key, race);
  }
}

// Called after the current store: it races with the unordered earlier one unless both stored the same
// value.
void check_overwrites() {
  for (const Overwrite &over : checker.overwrites) {
    if (memcmp(over.address, over.before.data(), over.before.size()) == 0) continue;
    report(over.now, Kind::Write, over.earlier, over.missing);
  }
  checker.overwrites.clear();
}

// Marks this thread's last reads of the address as the start of an atomic operation.
void note_starts(const char *address, unsigned thread) {
  for (const LastRead &read : checker.block->last_reads[thread]) {
    if (read.address == address) checker.starts.insert(read.counter);
  }
}

bool is_own(Access access, const Attempt &now) {
  return !access.none() && order.in_this_block(access) && access.thread() == now.me.thread;
}

// The scope that contains this thread and the thread of an earlier access. A wider scope needs a
// stronger barrier, so of two earlier accesses the one with the wider scope is reported.
unsigned distance(Access access, Me me) {
  if (access.none() || !order.in_this_launch(access)) return 0;
  if (!order.in_this_block(access)) return 4;
  if (!order.since_last_barrier(access)) return 1;
  return access.thread() / WARP == me.warp() ? 2 : 3;
}

void remember(const Attempt &now, Latest &latest) {
  if (!is_own(latest.one, now) && distance(latest.one, now.me) >= distance(latest.other, now.me)) {
    latest.other = latest.one;
  }
  latest.one = now.access;
}

// An arrival counter may be reset by plain assignment: this thread's atomic operation on it comes
// after those of all other blocks, since it was the last atomic operation of each. An accumulator
// differs in that its blocks go on to an atomic operation elsewhere.
bool is_arrival_counter(const Latest &strong_write, const Attempt &now) {
  const auto &[one, other] = strong_write;
  if (!one.atomic() || !other.atomic() || !order.in_this_launch(other)) return false;
  return order.last_atomic_of_block(other) == now.address &&
         order.missing(one, now.me, now.space) == Missing::Nothing;
}

// Strong accesses need no order among themselves. Exceptions: one has block scope, or volatile
// accesses replace barriers in a block, relying on the lockstep of old GPUs.
bool excuse(const Attempt &now, Access earlier) {
  if (!now.manner.strong || !earlier.strong()) return false;
  const bool both_atomic = now.access.atomic() && earlier.atomic();
  const bool same_warp =
      order.in_this_block(earlier) && earlier.thread() / WARP == now.me.warp();
  if (now.space == Space::Shared || same_warp) return both_atomic;
  const bool too_narrow = now.access.block_only() || earlier.block_only();
  return !too_narrow || order.in_this_block(earlier);
}

// `bytes` are the accessed bytes of the cell.
void check_cell(Cell &cell, const Attempt &now, std::string_view bytes) {
  const auto check = [&](Kind earlier_kind, Access earlier) {
    if (earlier.none() || excuse(now, earlier)) return;
    Missing missing = order.missing(earlier, now.me, now.space);
    if (missing == Missing::Nothing) return;
    const bool same_block = order.in_this_block(earlier);
    if (earlier_kind == Kind::Read && !same_block) missing = Missing::BlockOrder;
    if (now.access.block_only() || earlier.block_only()) missing = Missing::DeviceScope;
    const bool stores = now.manner.kind == Kind::Write && earlier_kind == Kind::Write;
    if (stores && !now.access.atomic() && !earlier.atomic()) {
      checker.overwrites.push_back({now, earlier, missing, bytes.data(), std::string(bytes)});
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

// Minus one, since the return address is the instruction after the call.
uint32_t counter_of(const void *return_address) {
  return static_cast<uint32_t>(static_cast<const char *>(return_address) - 1 -
                               checker.library_base);
}

bool is_written(const Cell &cell) {
  return !cell.write.one.none() || !cell.strong_write.one.none();
}

// Reports a read of shared memory if no thread of the block has written any of its bytes.
void check_is_written(const Shadow &shadow, size_t bytes, const Attempt &now) {
  // The first byte of an unwritten word may be the compiler's guard variable of a constructor.
  constexpr size_t WORD = 8;
  const bool starts_word = reinterpret_cast<size_t>(now.address) % WORD == 0;
  const bool may_be_guard = bytes == 1 && starts_word;
  Cell *last = shadow.last(now.address, bytes);
  for (Cell *cell = shadow.first(now.address); cell <= last; cell++) {
    if (is_written(*cell)) return;
  }
  if (may_be_guard && std::none_of(last + 1, shadow.last(now.address, WORD) + 1, is_written)) return;
  checker.unset.try_emplace(now.access.counter(),
                            ": shared memory is read before any thread has written it (thread " +
                                std::to_string(now.me.thread) + " of block " +
                                std::to_string(order.block()) + ")");
}

void check_cells(const Shadow &shadow, size_t bytes, const Attempt &now) {
  Cell *last = shadow.last(now.address, bytes);
  for (Cell *cell = shadow.first(now.address); cell <= last; cell++) {
    const char *from = std::max(shadow.place(cell), now.address);
    const char *to = std::min(shadow.place(cell + 1), now.address + bytes);
    check_cell(*cell, now, {from, static_cast<size_t>(to - from)});
  }
}

void check_local(const char *address, uint32_t counter) {
  if (!running_block->is_local_of_another(address)) return;
  diagnose_line("local " + std::to_string(counter),
                token(counter) + ": thread " + std::to_string(this_thread->rank) +
                    " accesses a local variable of another thread, which only that thread can "
                    "address");
}

// Counts a polling load; reports a hang if no thread writes a value any more.
void poll() {
  if (++checker.polls > MAX_POLLS) {
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
  check_overwrites();
  const char *address = static_cast<const char *>(pointer);
  const Shadow *shadow = find_in(checker.block->shared, address);
  const Space space = shadow != nullptr ? Space::Shared : Space::Global;
  if (shadow == nullptr) shadow = find_buffer(address);
  if (shadow != nullptr && manner.kind == Kind::Write) {
    checker.polls = 0;
  } else if (shadow != nullptr && manner.strong) {
    poll();
  }
  values.restore();  // here, since `poll` above may have run other threads
  if (shadow == nullptr) {
    check_local(address, counter_of(return_address));
    return;
  }
  const Me me = {this_thread->rank};
  const uint32_t counter = counter_of(return_address);
  const uint64_t now = order.now();
  if (manner.kind == Kind::Read && (manner.strong || checker.starts.count(counter))) {
    const bool stale = values.show_stale(address, bytes, space, me, counter, order);
    if (manner.strong) order.load(me, address, space, stale, manner.acquires);
  }
  if (manner.kind == Kind::Read) {
    LastRead (&reads)[2] = checker.block->last_reads[me.thread];
    reads[1] = reads[0];
    reads[0] = {address, counter};
  }
  const Access access(now, order.block(), me.thread, manner, counter);
  const Attempt attempt = {manner, address, space, me, access};
  if (space == Space::Shared && manner.kind == Kind::Read) check_is_written(*shadow, bytes, attempt);
  check_cells(*shadow, bytes, attempt);
  if (manner.strong && manner.kind == Kind::Write) {
    values.changes(address, address, bytes, space, access);
    order.store(me, address, space);
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
  checker.polls = 0;
  checker.starts.clear();
  checker.races.clear();
  checker.unset.clear();
  checker.copying = false;
  variables.clear();
  for (const Segment &segment : segments.variables) {
    variables.emplace_back(segment.start, segment.bytes, segment.bytes > LARGE ? 4 : 1);
  }
  order.launch_begins(launch.threads());
  values.launch_begins();
}

void launch_ends() {
  values.restore();
  for (const Pending &finding : checker.pending) {
    const bool polled =
        finding.polls && values.was_polled(finding.address, finding.space, finding.reader);
    const bool starts = checker.starts.count(finding.reader.counter()) != 0;
    if (!polled && !starts) add_race(finding.key, finding.race);
  }
  checker.pending.clear();
  for (const auto &[key, race] : checker.races) diagnose_line(key, race.line);
  // A read that is too early because a barrier is missing was reported above, as a race.
  for (const auto &[counter, line] : checker.unset) {
    if (!any_diagnostics()) diagnose_line(line, token(counter) + line);
  }
}

WatchedBlockPointer begin_block(uint64_t number, Segment shared, Segment dynamic_shared) {
  WatchedBlockPointer block(new WatchedBlock);
  for (const Segment &memory : {shared, dynamic_shared}) {
    if (memory.bytes != 0) block->shared.emplace_back(memory.start, memory.bytes, 1);
  }
  order.block_begins(block->clock, static_cast<uint32_t>(number));
  checker.block = block.get();
  return block;
}

void leave_block() {
  check_overwrites();
  values.restore();
}

void enter_block(WatchedBlock &block) {
  order.block_resumes(block.clock);
  checker.block = &block;
}

void barrier_released() { order.barrier_released(); }

void warp_synchronised(unsigned warp, unsigned lanes) { order.warp_synchronised(warp, lanes); }

void thread_fenced(Scope scope, Fence fence) {
  order.thread_fenced({this_thread->rank}, scope, fence);
}

void copying(bool begins) { checker.copying = begins; }

void atomic_reads(const void *pointer, size_t bytes, Scope scope, bool acquires,
                  const void *return_address) {
  check_overwrites();
  const char *address = static_cast<const char *>(pointer);
  poll();
  values.restore();
  const Shadow *shadow = find_in(checker.block->shared, address);
  const Space space = shadow != nullptr ? Space::Shared : Space::Global;
  if (shadow == nullptr) shadow = find_buffer(address);
  const Me me = {this_thread->rank};
  const Manner manner = {Kind::Atomic, true, scope == Scope::Block, true};
  const Access access(order.now(), order.block(), me.thread, manner, counter_of(return_address));
  note_starts(address, me.thread);
  order.atomic_reads(me, address, space, scope, acquires);
  if (shadow != nullptr) check_cells(*shadow, bytes, {manner, address, space, me, access});
  checker.update = {address, bytes, space, scope, access, {}};
  memcpy(checker.update.before, address, bytes);
}

void atomic_writes() {
  checker.polls = 0;
  const Update &update = checker.update;
  values.changes(update.address, update.before, update.bytes, update.space, update.access);
  order.atomic_writes({this_thread->rank}, update.address, update.space, update.scope);
}

}  // namespace races
}  // namespace cudaemu
