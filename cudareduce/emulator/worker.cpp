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

// All that may be started and not ended at a time, the largest block on each SM of the emulator's
// device: each thread touches two pages of its stack, all of them a gigabyte.
constexpr unsigned MAX_RESIDENT_THREADS = 132 << 10;
constexpr unsigned MAX_RESIDENTS = 256;
// So often may all that wait look in vain while there is no room for those they may wait for. Blocks
// of another OS thread may be what they wait for, and the machine may run that one late.
constexpr unsigned ROUNDS_IN_VAIN = 64, ROUNDS_BESIDE_OTHERS = 100;
constexpr timespec NAP = {0, 5'000'000}, BLINK = {0, 50'000};
constexpr size_t SHARED_ALIGNMENT = 16;  // of dynamic shared memory

size_t aligned(size_t bytes) { return (bytes + SHARED_ALIGNMENT - 1) / SHARED_ALIGNMENT * SHARED_ALIGNMENT; }

}  // namespace

Resident::~Resident() {
  if (dynamic_end_ != nullptr) munmap(dynamic_end_ - MAX_DYNAMIC_SHARED, MAX_DYNAMIC_SHARED + PAGE);
}

// Ends, but for its alignment, at a guard page.
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

// Few visits to the shared counter where there are many blocks, yet a fair share for everyone.
bool Worker::has_fresh(const Launch &launch, Handout &handout) {
  if (first_ < last_) return true;
  const uint64_t share = std::clamp<uint64_t>((launch.last - launch.first) / 64, 1, 64);
  first_ = handout.next.fetch_add(share);
  last_ = std::min(first_ + share, launch.last);
  return first_ < last_;
}

// Makes the static shared memory that of this block, whose own is where the kernel's code expects it
// only while the block runs.
void Worker::enter(Resident &resident) {
  if (entered_ == &resident) return;
  const Segment &here = segments_.shared;
  if (entered_ != nullptr) entered_->shared.assign(here.start, here.start + here.bytes);
  if (!resident.shared.empty()) memcpy(here.start, resident.shared.data(), here.bytes);
  entered_ = &resident;
  if (resident.watched != nullptr) races::enter_block(*resident.watched);
}

// When a block has ended: an index into what it was given may have gone past the end unseen.
void Worker::look_behind_shared(const Launch &launch, Resident &resident) const {
  const Segment &behind = segments_.behind_shared;
  const char *past = "it wrote past the end of its shared memory";
  if (!is_poison(behind.start, behind.start + behind.bytes)) diagnose_line("behind", past);
  const size_t bytes = launch.dynamic_shared;
  const char *dynamic = resident.dynamic_shared(bytes);
  if (dynamic == nullptr || is_poison(dynamic + bytes, dynamic + aligned(bytes))) return;
  diagnose_line("behind", std::string(past) + ", of which " + std::to_string(bytes) +
                              " bytes are dynamic");
}

// Of the block that comes next. In a random order the last comes first, if all can be there at once:
// CUDA promises no order, and kernels rely on one where not all can.
uint64_t Worker::number(const Launch &launch) const {
  const uint64_t blocks = launch.blocks();
  const bool together = blocks <= MAX_RESIDENTS && blocks * launch.threads() <= MAX_RESIDENT_THREADS;
  return launch.order == Order::Random && together ? blocks - 1 - first_ : first_;
}

// What is left in a block's shared memory by whoever had it before: NaN, which a maximum may drop,
// large numbers, which it does not, or small ones. The last ten bits of each word are ones, which
// tiles of several warps rely on.
static void leave_behind(char *start, size_t bytes, size_t number) {
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
  leave_behind(segments_.shared.start, segments_.shared.bytes, before);
  memset(segments_.behind_shared.start, POISON, segments_.behind_shared.bytes);
  if (dynamic != nullptr) {
    memset(dynamic, POISON, aligned(launch.dynamic_shared));
    leave_behind(dynamic, launch.dynamic_shared, before);
  }
  if (launch.watched) {
    resident.watched = races::begin_block(number(launch), segments_.shared,
                                            {dynamic, launch.dynamic_shared});
  }
  return &resident;
}

Resident *Worker::choose_waiting(const Launch &launch) {
  // None of them is passed over for long: what they all wait for may be its turn.
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

// Forgets the blocks that will not go on.
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
  // Watched threads are seen to look at what others may change, and take turns at that.
  const Ticker ticker(launch.watched || launch.counted ? Segment{} : segments_.code);
  const unsigned room =
      std::clamp(MAX_RESIDENT_THREADS / launch.threads() / workers, 2u, MAX_RESIDENTS);
  const unsigned rounds = workers == 1 ? ROUNDS_IN_VAIN : ROUNDS_BESIDE_OTHERS;
  unsigned in_vain = 0;  // turns since a block has ended, `before` of them all
  uint64_t before = 0;
  while (launch.watched || !any_diagnostics()) {
    bool fresh = waiting_.size() < room && has_fresh(launch, handout);
    // In a random order blocks go on while others have not begun.
    if (fresh && !waiting_.empty() && launch.order != Order::Ascending) fresh = random() % 2 == 0;
    if (!fresh && waiting_.empty()) break;
    Resident *resident = fresh ? start_fresh(launch) : choose_waiting(launch);
    if (!fresh) enter(*resident);
    const Left left = fresh ? resident->block.start(number(launch)) : resident->block.go_on();
    if (fresh) first_++;
    if (launch.watched) races::leave_block();
    if (left == Left::Paused) {
      waiting_.push_back(resident);
      if (launch.overdue()) {
        handout.cut = true;
        break;
      }
      const uint64_t ended = __atomic_load_n(&launch.barrier.ended, __ATOMIC_RELAXED);
      in_vain = ended == before ? in_vain + 1 : 0;
      before = ended;
      if (in_vain > waiting_.size()) nanosleep(&BLINK, nullptr);  // perhaps for another process
      if (waiting_.size() < room) continue;
      if (workers > 1 && in_vain % room == room - 1) nanosleep(&NAP, nullptr);
      if (in_vain > rounds * room && has_fresh(launch, handout)) {
        diagnose_line("residents", "its blocks wait for others, and the emulator runs " +
                                       std::to_string(room) + " of them at a time");
        break;
      }
      continue;
    }
    __atomic_add_fetch(&launch.barrier.ended, 1, __ATOMIC_SEQ_CST);
    look_behind_shared(launch, *resident);
    if (launch.counted) traffic::block_ends(resident->block);
    resident->watched = nullptr;
    entered_ = nullptr;
    idle_.push_back(resident);
    if (left == Left::GivenUp) {
      handout.next = launch.last;
      break;
    }
  }
  drop_waiting();
}

}  // namespace cudaemu
