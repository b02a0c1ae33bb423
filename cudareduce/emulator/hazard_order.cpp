#include "hazard_order.h"

#include <string.h>

#include <algorithm>

namespace cudaemu {
namespace hazards {

void Timeline::launch_begins(unsigned threads) {
  launch_start_ = ++now_;
  threads_ = threads;
  blocks_.clear();
}

void Timeline::block_begins() {
  block_start_ = epoch_start_ = ++now_;
  blocks_.push_back({block_start_, nullptr, {}});
  memset(joined_, 0, sizeof joined_[0] * ((threads_ + WARP - 1) / WARP));
  for (Fences &fences : fences_) fences = {};
  atomics_.clear();
}

void Timeline::barrier_released() {
  epoch_start_ = ++now_;
  for (Fences &fences : fences_) {
    for (const auto &[thread, ticks] : fences.before) take_later(fences.all, ticks);
    fences.before.clear();
  }
}

void Timeline::warp_synchronised(unsigned warp, unsigned lanes) {
  uint64_t (&joined)[WARP][WARP] = joined_[warp];
  const uint64_t now = ++now_;
  uint64_t known[WARP] = {};  // what any of the lanes knew of each lane
  Ticks fenced[SCOPES];
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) == 0) continue;
    for (unsigned b = 0; b < WARP; b++) known[b] = std::max(known[b], joined[lane][b]);
    for (unsigned scope = 0; scope < SCOPES; scope++) {
      const auto own = fences_[scope].before.find(warp * WARP + lane);
      if (own != fences_[scope].before.end()) take_later(fenced[scope], own->second);
    }
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) != 0) known[lane] = now;
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) == 0) continue;
    memcpy(joined[lane], known, sizeof known);
    for (unsigned scope = 0; scope < SCOPES; scope++) {
      if (!fenced[scope].empty()) fences_[scope].before[warp * WARP + lane] = fenced[scope];
    }
  }
}

void Timeline::thread_fenced(Me me, Scope reach) {
  Ticks before(threads_, epoch_start_);
  const unsigned first = me.warp() * WARP;
  for (unsigned b = 0; b < WARP && first + b < threads_; b++) {
    before[first + b] = std::max(epoch_start_, joined_[me.warp()][me.lane()][b]);
  }
  before[me.thread] = ++now_;
  for (const Scope scope : {Scope::Block, Scope::Device}) {
    if (scope <= reach) take_later(fences_[static_cast<unsigned>(scope)].before[me.thread], before);
  }
}

void Timeline::atomic_done(Me me, const char *address, Space space) {
  const uint64_t now = ++now_;
  Atomics &here = atomics_[address];
  if (here.first == 0) here.first = now;
  here.space = space;
  here.last_of_warp[me.warp()] = now;
  BlockRecord &block = blocks_.back();
  block.last_atomic = address;
  for (unsigned scope = 0; scope < SCOPES; scope++) {
    const Fences &fences = fences_[scope];
    const auto own = fences.before.find(me.thread);
    if (!fences.all.empty()) take_later(block.announced[scope][address], fences.all);
    if (own != fences.before.end()) take_later(block.announced[scope][address], own->second);
  }
}

size_t Timeline::block_of(Access access) const {
  const auto after = std::upper_bound(
      blocks_.begin(), blocks_.end(), access.tick(),
      [](uint64_t wanted, const BlockRecord &block) { return wanted < block.start; });
  return static_cast<size_t>(after - blocks_.begin()) - 1;
}

const char *Timeline::last_atomic_of_block(Access access) const {
  return blocks_[block_of(access)].last_atomic;
}

const char *Timeline::what_is_missing(Access earlier, Me me, Space space) const {
  // Shared memory starts anew with each block.
  if (space == Space::Shared ? !in_this_block(earlier) : !in_this_launch(earlier)) return nullptr;
  if (in_this_block(earlier)) {
    if (earlier.thread() == me.thread || !since_last_barrier(earlier)) return nullptr;
    const bool same_warp = earlier.thread() / WARP == me.warp();
    const uint64_t *joined = joined_[me.warp()][me.lane()];
    if (same_warp && earlier.tick() < joined[earlier.thread() % WARP]) return nullptr;
    // Warps of one block may hand over by fence and atomic operation as blocks do.
    if (is_handed_over(earlier, me)) return nullptr;
    return same_warp ? "no __syncwarp() between them" : "no __syncthreads() between them";
  }
  if (is_handed_over(earlier, me)) return nullptr;
  return is_announced(earlier) ? "no atomic operation that hands it over"
                               : "no __threadfence() after it and before an atomic operation";
}

void Timeline::take_later(Ticks &ticks, const Ticks &others) {
  ticks.resize(others.size());
  std::transform(ticks.begin(), ticks.end(), others.begin(), ticks.begin(),
                 [](uint64_t a, uint64_t b) { return std::max(a, b); });
}

// What the block of an access has announced to the one at hand: to itself, or to another.
const Timeline::Announced &Timeline::announced_by(Access earlier) const {
  if (in_this_block(earlier)) {
    return blocks_.back().announced[static_cast<unsigned>(Scope::Block)];
  }
  return blocks_[block_of(earlier)].announced[static_cast<unsigned>(Scope::Device)];
}

bool Timeline::is_announced(Access earlier) const {
  const Announced &announced = announced_by(earlier);
  return std::any_of(announced.begin(), announced.end(), [&](const auto &entry) {
    return earlier.tick() < entry.second[earlier.thread()];
  });
}

bool Timeline::is_handed_over(Access earlier, Me me) const {
  for (const auto &[address, ticks] : announced_by(earlier)) {
    if (earlier.tick() < ticks[earlier.thread()] && has_heard(address, earlier, me)) return true;
  }
  return false;
}

// Did this warp since then, or this block before its last barrier, do an atomic operation here?
bool Timeline::has_heard(const char *address, Access earlier, Me me) const {
  const auto found = atomics_.find(address);
  if (found == atomics_.end()) return false;
  const Atomics &here = found->second;
  // Every block has its shared memory at the same address, and yet its own.
  if (here.space == Space::Shared && !in_this_block(earlier)) return false;
  if (here.last_of_warp[me.warp()] > earlier.tick()) return true;
  return !in_this_block(earlier) && here.first < epoch_start_;
}

}  // namespace hazards
}  // namespace cudaemu
