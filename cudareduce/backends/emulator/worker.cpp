#include "worker.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <new>
#include <string>

#include "diagnostics.h"
#include "memory.h"
#include "ticker.h"
#include "traffic.h"

namespace cudaemu {
namespace {

// Limit of resident threads: one block of 1024 threads on each of 132 SMs. Each thread uses two pages
// of its stack, a gigabyte in all.
constexpr unsigned MAX_RESIDENT_THREADS = 132 << 10;
constexpr unsigned MAX_RESIDENTS = 256;
// If all resident blocks only poll for this many rounds, they wait for blocks that are not resident.
// The limit is higher with several OS threads, since the machine may delay one of them.
constexpr unsigned IDLE_ROUNDS = 64, IDLE_ROUNDS_OF_SEVERAL = 100;
constexpr timespec NAP = {0, 5'000'000}, BLINK = {0, 50'000};
constexpr size_t SHARED_ALIGNMENT = 16;  // alignment of dynamic shared memory

size_t aligned(size_t bytes) { return (bytes + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT * SHARED_ALIGNMENT; }

}  // namespace

Resident::~Resident() {
  if (dynamic_end_ != nullptr) munmap(dynamic_end_ - MAX_DYNAMIC_SHARED, MAX_DYNAMIC_SHARED + PAGE);
}

// Dynamic shared memory of `bytes` bytes that ends, up to alignment, at a guard page.
char *Resident::dynamic_shared(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (dynamic_end_ == nullptr) {
    void *map = mmap(nullptr, MAX_DYNAMIC_SHARED + PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    dynamic_end_ = static_cast<char *>(map) + MAX_DYNAMIC_SHARED;
    mprotect(dynamic_end_, PAGE, PROT_NONE);
  }
  return dynamic_end_ - aligned(bytes);
}

// True if this OS thread has a block to start. Takes blocks from the shared counter, several at a time
// if there are many.
bool Worker::has_fresh(const Launch &launch, Handout &handout) {
  if (first_ < last_) return true;
  const uint64_t share = std::clamp<uint64_t>((launch.last - launch.first) / 64, 1, 64);
  first_ = handout.next.fetch_add(share);
  last_ = std::min(first_ + share, launch.last);
  return first_ < last_;
}

// Swaps in the static shared memory of this block, since all blocks of an OS thread use the same
// addresses.
void Worker::enter(Resident &resident) {
  if (entered_ == &resident) return;
  const Segment &here = segments_.shared;
  if (entered_ != nullptr) entered_->shared.assign(here.start, here.start + here.bytes);
  if (!resident.shared.empty()) memcpy(here.start, resident.shared.data(), here.bytes);
  entered_ = &resident;
  if (resident.watched != nullptr) races::enter_block(*resident.watched);
}

// Reports writes past the end of shared memory; called when a block has ended.
void Worker::check_behind_shared(const Launch &launch, Resident &resident) const {
  const Segment &behind = segments_.behind_shared;
  const char *past = "it wrote past the end of its shared memory";
  if (!is_poison(behind.start, behind.start + behind.bytes)) diagnose_line("behind", past);
  const size_t bytes = launch.dynamic_shared;
  const char *dynamic = resident.dynamic_shared(bytes);
  if (dynamic == nullptr || is_poison(dynamic + bytes, dynamic + aligned(bytes))) return;
  diagnose_line("behind", std::string(past) + ", of which " + std::to_string(bytes) +
                              " bytes are dynamic");
}

// The number of the next block. CUDA guarantees no order of blocks, so the random schedule starts with
// the last block if all blocks can be resident. Kernels with more blocks often rely on ascending order.
uint64_t Worker::number(const Launch &launch) const {
  const uint64_t blocks = launch.blocks();
  const bool together = blocks <= MAX_RESIDENTS && blocks * launch.threads() <= MAX_RESIDENT_THREADS;
  return launch.order == Order::Random && together ? blocks - 1 - first_ : first_;
}

// Fills shared memory with values that an earlier block might leave: NaN, large or small numbers, since
// a maximum may ignore NaN. The low ten bits of each word are ones, on which the counters of tiles of
// several warps rely (cooperative_groups.h).
static void fill_with_remains(char *start, size_t bytes, size_t number) {
  constexpr uint32_t left[] = {0xffffffff, 0x7b7b7bff, 0xfbfbfbff};
  const uint32_t word = left[number % (sizeof left / sizeof *left)];
  for (size_t at = 0; at < bytes; at += sizeof word) {
    memcpy(start + at, &word, std::min(sizeof word, bytes - at));
  }
}

Resident *Worker::start_fresh(const Launch &launch) {
  if (idle_.empty()) {
    residents_.push_back(std::make_unique<Resident>(residents_.empty()));
    idle_.push_back(residents_.back().get());
  }
  Resident &resident = *idle_.back();
  idle_.pop_back();
  char *dynamic = resident.dynamic_shared(launch.dynamic_shared);
  resident.block.prepare(launch, dynamic);
  resident.shared.clear();
  enter(resident);
  const size_t before = number(launch) + launch.seed;
  fill_with_remains(segments_.shared.start, segments_.shared.bytes, before);
  memset(segments_.behind_shared.start, POISON, segments_.behind_shared.bytes);
  if (dynamic != nullptr) {
    memset(dynamic, POISON, aligned(launch.dynamic_shared));
    fill_with_remains(dynamic, launch.dynamic_shared, before);
  }
  if (launch.watched) {
    resident.watched = races::begin_block(number(launch), segments_.shared,
                                            {dynamic, launch.dynamic_shared});
  }
  return &resident;
}

Resident *Worker::choose_waiting(const Launch &launch) {
  // From the blocks paused longest, since the others may wait for them.
  const size_t first_half = (waiting_.size() + 1) / 2;
  const size_t place = launch.order == Order::Ascending ? 0 : random() % first_half;
  Resident *chosen = waiting_[place];
  waiting_.erase(waiting_.begin() + static_cast<long>(place));
  return chosen;
}

uint64_t Worker::random() {
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  return random_ >> 33;
}

// Discards the blocks that will not be resumed.
void Worker::drop_waiting() {
  for (Resident *resident : waiting_) {
    resident->block.forget();
    resident->watched = nullptr;
    idle_.push_back(resident);
  }
  waiting_.clear();
  first_ = last_ = 0;
}

void Worker::run(const Launch &launch, Handout &handout, unsigned workers) {
  use_signal_stack();
  segments_ = segments_of(*launch.entry);
  entered_ = nullptr;
  random_ = launch.seed;
  // With race detection, threads switch at polling loads, so they need no ticker.
  const Ticker ticker(launch.watched || launch.counted ? Segment{} : segments_.code);
  const unsigned room =
      std::clamp(MAX_RESIDENT_THREADS / launch.threads() / workers, 2u, MAX_RESIDENTS);
  const unsigned rounds = workers == 1 ? IDLE_ROUNDS : IDLE_ROUNDS_OF_SEVERAL;
  unsigned idle_turns = 0;  // turns since `before`, the number of ended blocks, has changed
  uint64_t before = 0;
  while (launch.watched || !any_diagnostics()) {
    bool fresh = waiting_.size() < room && has_fresh(launch, handout);
    // The random schedule resumes some blocks before others have begun.
    if (fresh && !waiting_.empty() && launch.order != Order::Ascending) fresh = random() % 2 == 0;
    if (!fresh && waiting_.empty()) break;
    Resident *resident = fresh ? start_fresh(launch) : choose_waiting(launch);
    if (!fresh) enter(*resident);
    const Outcome left = fresh ? resident->block.start(number(launch)) : resident->block.resume();
    if (fresh) first_++;
    if (launch.watched) races::leave_block();
    if (left == Outcome::Paused) {
      waiting_.push_back(resident);
      if (launch.overdue()) {
        handout.cut = true;
        break;
      }
      const uint64_t ended = __atomic_load_n(&launch.barrier.ended, __ATOMIC_RELAXED);
      idle_turns = ended == before ? idle_turns + 1 : 0;
      before = ended;
      if (idle_turns > waiting_.size()) nanosleep(&BLINK, nullptr);  // may wait for another process
      if (waiting_.size() < room) continue;
      if (workers > 1 && idle_turns % room == room - 1) nanosleep(&NAP, nullptr);
      if (idle_turns > rounds * room && has_fresh(launch, handout)) {
        diagnose_line("residents", "its blocks wait for others, and the emulator runs " +
                                       std::to_string(room) + " of them at a time");
        break;
      }
      continue;
    }
    __atomic_add_fetch(&launch.barrier.ended, 1, __ATOMIC_SEQ_CST);
    check_behind_shared(launch, *resident);
    if (launch.counted) traffic::block_ends(resident->block);
    resident->watched = nullptr;
    entered_ = nullptr;
    idle_.push_back(resident);
    if (left == Outcome::Abandoned) {
      handout.next = launch.last;
      break;
    }
  }
  drop_waiting();
}

}  // namespace cudaemu
