#include "happens_before.h"

#include <string.h>

#include <algorithm>

namespace cudaemu {
namespace races {

bool VectorClock::covers(Access access) const {
  const auto found = of_.find(access.block());
  return found != of_.end() && access.tick() < (*found->second)[access.thread()];
}

void VectorClock::join(uint32_t block, const std::shared_ptr<const Ticks> &ticks) {
  std::shared_ptr<const Ticks> &known = of_[block];
  if (known == nullptr || known == ticks) {
    known = ticks;
    return;
  }
  const auto later = [](uint64_t a, uint64_t b) { return a <= b; };
  if (std::equal(known->begin(), known->end(), ticks->begin(), later)) {
    known = ticks;
  } else if (!std::equal(ticks->begin(), ticks->end(), known->begin(), later)) {
    auto both = std::make_shared<Ticks>(*known);
    std::transform(both->begin(), both->end(), ticks->begin(), both->begin(),
                   [](uint64_t a, uint64_t b) { return std::max(a, b); });
    known = both;
  }
}

void VectorClock::join(const VectorClock &other) {
  for (const auto &[block, ticks] : other.of_) join(block, ticks);
}

void VectorClock::join(uint32_t block, const VectorClock &other) {
  const auto found = other.of_.find(block);
  if (found != other.of_.end()) join(block, found->second);
}

void HappensBefore::launch_begins(unsigned threads) {
  launch_start_ = ++now_;
  threads_ = threads;
  releases_.clear();
  last_atomics_.clear();
  publishers_.clear();
}

void HappensBefore::block_begins(BlockClock &block, uint32_t number) {
  block.number = number;
  block.epoch_start = ++now_;
  memset(block.joined, 0, sizeof block.joined[0] * ((threads_ + WARP - 1) / WARP));
  block_ = &block;
}

void HappensBefore::barrier_released() {
  BlockClock &block = *block_;
  block.epoch_start = ++now_;
  for (BlockClock::Fences &fences : block.fences) {
    for (const auto &[thread, ticks] : fences.by_thread) take_later(fences.all, ticks);
    fences.by_thread.clear();
  }
  for (VectorClock &acquired : block.acquired_by_warp) {
    block.acquired.join(acquired);
    acquired.clear();
  }
}

void HappensBefore::warp_synchronised(unsigned warp, unsigned lanes) {
  uint64_t (&joined)[WARP][WARP] = block_->joined[warp];
  const uint64_t now = ++now_;
  uint64_t known[WARP] = {};  // by lane, what any of the lanes knew of it
  Ticks fenced[SCOPES];
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) == 0) continue;
    for (unsigned b = 0; b < WARP; b++) known[b] = std::max(known[b], joined[lane][b]);
    for (unsigned scope = 0; scope < SCOPES; scope++) {
      const auto &fences = block_->fences[scope].by_thread;
      const auto own = fences.find(warp * WARP + lane);
      if (own != fences.end()) take_later(fenced[scope], own->second);
    }
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) != 0) known[lane] = now;
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) == 0) continue;
    memcpy(joined[lane], known, sizeof known);
    for (unsigned scope = 0; scope < SCOPES; scope++) {
      if (fenced[scope].empty()) continue;
      block_->fences[scope].by_thread[warp * WARP + lane] = fenced[scope];
    }
  }
}

void HappensBefore::thread_fenced(Me me, Scope reach, Fence order) {
  if (order != Fence::Release) {
    const auto observed = block_->observed.find(me.thread);
    if (observed != block_->observed.end()) {
      acquire(me, observed->second, reach);
      block_->observed.erase(observed);
    }
  }
  if (order == Fence::Acquire) return;
  Ticks before(threads_, block_->epoch_start);
  const unsigned first = me.warp() * WARP;
  for (unsigned b = 0; b < WARP && first + b < threads_; b++) {
    before[first + b] = std::max(block_->epoch_start, block_->joined[me.warp()][me.lane()][b]);
  }
  before[me.thread] = ++now_;
  for (const Scope scope : {Scope::Block, Scope::Device}) {
    if (scope > reach) continue;
    take_later(block_->fences[static_cast<unsigned>(scope)].by_thread[me.thread], before);
  }
}

Releases &HappensBefore::releases_at(const char *address, Space space) {
  // Shared memory of all blocks has the same addresses.
  return (space == Space::Shared ? block_->releases : releases_)[address];
}

// Adds to a release what this thread has fenced and what its warp has acquired.
void HappensBefore::add_own(Release &release, Me me, Scope reach) {
  for (const Scope scope : {Scope::Block, Scope::Device}) {
    const BlockClock::Fences &fences = block_->fences[static_cast<unsigned>(scope)];
    const auto own = fences.by_thread.find(me.thread);
    if (scope > reach || (fences.all.empty() && own == fences.by_thread.end())) continue;
    auto ticks = std::make_shared<Ticks>(fences.all);
    if (own != fences.by_thread.end()) take_later(*ticks, own->second);
    VectorClock &released = release.of[static_cast<unsigned>(scope)];
    released.join(block_->acquired);
    released.join(block_->acquired_by_warp[me.warp()]);
    released.join(block_->number, ticks);
  }
}

void HappensBefore::store(Me me, const char *address, Space space) {
  ++now_;
  publishers_.insert(block_->number);
  Releases &releases = releases_at(address, space);
  releases.before = std::move(releases.latest);
  releases.latest = {};
  add_own(releases.latest, me, Scope::Device);
}

void HappensBefore::atomic_reads(Me me, const char *address, Space space, Scope scope,
                                 bool acquires) {
  ++now_;
  last_atomics_[block_->number] = address;
  publishers_.insert(block_->number);
  observe(me, releases_at(address, space).latest, scope, acquires);
  Release own;  // a lane may pass its result on to the others by a shuffle
  add_own(own, me, scope);
  acquire(me, own, scope);
}

void HappensBefore::atomic_writes(Me me, const char *address, Space space, Scope scope) {
  Releases &releases = releases_at(address, space);
  releases.before = releases.latest;
  add_own(releases.latest, me, scope);
}

void HappensBefore::load(Me me, const char *address, Space space, bool stale, bool acquires) {
  ++now_;
  const ReleasesByAddress &all = space == Space::Shared ? block_->releases : releases_;
  const auto found = all.find(address);
  if (found == all.end()) return;
  observe(me, stale ? found->second.before : found->second.latest, Scope::Device, acquires);
}

void HappensBefore::observe(Me me, const Release &release, Scope scope, bool acquires) {
  if (acquires) {
    acquire(me, release, scope);
    return;
  }
  Release &observed = block_->observed[me.thread];
  observed.of[0].join(release.of[0]);
  if (scope == Scope::Device) observed.of[1].join(release.of[1]);
}

void HappensBefore::acquire(Me me, const Release &release, Scope scope) {
  VectorClock &acquired = block_->acquired_by_warp[me.warp()];
  acquired.join(block_->number, release.of[static_cast<unsigned>(Scope::Block)]);
  if (scope == Scope::Device) acquired.join(release.of[static_cast<unsigned>(Scope::Device)]);
}

const char *HappensBefore::last_atomic_of_block(Access access) const {
  const auto found = last_atomics_.find(access.block());
  return found == last_atomics_.end() ? nullptr : found->second;
}

Missing HappensBefore::missing(Access earlier, Me me, Space space) const {
  if (!in_this_launch(earlier) || has_acquired(earlier, me)) return Missing::Nothing;
  if (in_this_block(earlier)) {
    if (earlier.thread() == me.thread || !since_last_barrier(earlier)) return Missing::Nothing;
    const bool same_warp = earlier.thread() / WARP == me.warp();
    const uint64_t *joined = block_->joined[me.warp()][me.lane()];
    if (same_warp && earlier.tick() < joined[earlier.thread() % WARP]) return Missing::Nothing;
    return same_warp ? Missing::Syncwarp : Missing::Syncthreads;
  }
  if (space == Space::Shared) return Missing::Nothing;
  if (is_released(earlier)) return Missing::Acquire;
  return publishers_.count(earlier.block()) == 0 ? Missing::BlockOrder : Missing::Fence;
}

void HappensBefore::take_later(Ticks &ticks, const Ticks &others) {
  ticks.resize(others.size());
  std::transform(ticks.begin(), ticks.end(), others.begin(), ticks.begin(),
                 [](uint64_t a, uint64_t b) { return std::max(a, b); });
}

bool HappensBefore::has_acquired(Access earlier, Me me) const {
  return block_->acquired.covers(earlier) || block_->acquired_by_warp[me.warp()].covers(earlier);
}

bool HappensBefore::is_released(Access earlier) const {
  return std::any_of(releases_.begin(), releases_.end(), [&](const auto &entry) {
    constexpr unsigned device = static_cast<unsigned>(Scope::Device);
    return entry.second.latest.of[device].covers(earlier) ||
           entry.second.before.of[device].covers(earlier);
  });
}

}  // namespace races
}  // namespace cudaemu
