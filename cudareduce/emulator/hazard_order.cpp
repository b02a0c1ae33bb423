#include "hazard_order.h"

#include <string.h>

#include <algorithm>

namespace cudaemu {
namespace hazards {

bool Knowledge::covers(Access access) const {
  const auto found = of_.find(access.block());
  return found != of_.end() && access.tick() < (*found->second)[access.thread()];
}

void Knowledge::learn(uint32_t block, const std::shared_ptr<const Ticks> &ticks) {
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

void Knowledge::learn(const Knowledge &others) {
  for (const auto &[block, ticks] : others.of_) learn(block, ticks);
}

void Knowledge::learn(uint32_t block, const Knowledge &others) {
  const auto found = others.of_.find(block);
  if (found != others.of_.end()) learn(block, found->second);
}

void Timeline::launch_begins(unsigned threads) {
  launch_start_ = ++now_;
  threads_ = threads;
  mailboxes_.clear();
  last_atomics_.clear();
}

void Timeline::block_begins(BlockOrder &block, uint32_t number) {
  block.number = number;
  block.epoch_start = ++now_;
  memset(block.joined, 0, sizeof block.joined[0] * ((threads_ + WARP - 1) / WARP));
  block_ = &block;
}

void Timeline::barrier_released() {
  BlockOrder &block = *block_;
  block.epoch_start = ++now_;
  for (BlockOrder::Fences &fences : block.fences) {
    for (const auto &[thread, ticks] : fences.before) take_later(fences.all, ticks);
    fences.before.clear();
  }
  for (Knowledge &heard : block.heard_by) {
    block.heard.learn(heard);
    heard.clear();
  }
}

void Timeline::warp_synchronised(unsigned warp, unsigned lanes) {
  uint64_t (&joined)[WARP][WARP] = block_->joined[warp];
  const uint64_t now = ++now_;
  uint64_t known[WARP] = {};  // what any of the lanes knew of each lane
  Ticks fenced[SCOPES];
  for (unsigned lane = 0; lane < WARP; lane++) {
    if ((lanes >> lane & 1) == 0) continue;
    for (unsigned b = 0; b < WARP; b++) known[b] = std::max(known[b], joined[lane][b]);
    for (unsigned scope = 0; scope < SCOPES; scope++) {
      const auto &before = block_->fences[scope].before;
      const auto own = before.find(warp * WARP + lane);
      if (own != before.end()) take_later(fenced[scope], own->second);
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
      block_->fences[scope].before[warp * WARP + lane] = fenced[scope];
    }
  }
}

void Timeline::thread_fenced(Me me, Scope reach) {
  Ticks before(threads_, block_->epoch_start);
  const unsigned first = me.warp() * WARP;
  for (unsigned b = 0; b < WARP && first + b < threads_; b++) {
    before[first + b] = std::max(block_->epoch_start, block_->joined[me.warp()][me.lane()][b]);
  }
  before[me.thread] = ++now_;
  for (const Scope scope : {Scope::Block, Scope::Device}) {
    if (scope > reach) continue;
    take_later(block_->fences[static_cast<unsigned>(scope)].before[me.thread], before);
  }
}

Mailbox &Timeline::mailbox_at(const char *address, Space space) {
  // Every block has its shared memory at the same address, and yet its own.
  return (space == Space::Shared ? block_->mailboxes : mailboxes_)[address];
}

// What this thread has fenced, and what its warp had heard, goes into a message.
void Timeline::add_own(Message &message, Me me, Scope reach) {
  for (const Scope scope : {Scope::Block, Scope::Device}) {
    const BlockOrder::Fences &fences = block_->fences[static_cast<unsigned>(scope)];
    const auto own = fences.before.find(me.thread);
    if (scope > reach || (fences.all.empty() && own == fences.before.end())) continue;
    auto ticks = std::make_shared<Ticks>(fences.all);
    if (own != fences.before.end()) take_later(*ticks, own->second);
    Knowledge &said = message.of[static_cast<unsigned>(scope)];
    said.learn(block_->heard);
    said.learn(block_->heard_by[me.warp()]);
    said.learn(block_->number, ticks);
  }
}

void Timeline::store(Me me, const char *address, Space space) {
  ++now_;
  Mailbox &mailbox = mailbox_at(address, space);
  mailbox.before = std::move(mailbox.latest);
  mailbox.latest = {};
  add_own(mailbox.latest, me, Scope::Device);
}

void Timeline::atomic(Me me, const char *address, Space space, Scope scope) {
  ++now_;
  last_atomics_[block_->number] = address;
  Mailbox &mailbox = mailbox_at(address, space);
  mailbox.before = mailbox.latest;
  add_own(mailbox.latest, me, scope);
  hear_message(me, mailbox.latest, scope);  // its own too, which one lane may read out to the others
}

void Timeline::load(Me me, const char *address, Space space, bool older) {
  ++now_;
  const Mailboxes &mailboxes = space == Space::Shared ? block_->mailboxes : mailboxes_;
  const auto found = mailboxes.find(address);
  if (found == mailboxes.end()) return;
  hear_message(me, older ? found->second.before : found->second.latest, Scope::Device);
}

void Timeline::hear_message(Me me, const Message &message, Scope scope) {
  Knowledge &heard = block_->heard_by[me.warp()];
  heard.learn(block_->number, message.of[static_cast<unsigned>(Scope::Block)]);
  if (scope == Scope::Device) heard.learn(message.of[static_cast<unsigned>(Scope::Device)]);
}

const char *Timeline::last_atomic_of_block(Access access) const {
  const auto found = last_atomics_.find(access.block());
  return found == last_atomics_.end() ? nullptr : found->second;
}

const char *Timeline::what_is_missing(Access earlier, Me me, Space space) const {
  if (!in_this_launch(earlier) || has_heard(earlier, me)) return nullptr;
  if (in_this_block(earlier)) {
    if (earlier.thread() == me.thread || !since_last_barrier(earlier)) return nullptr;
    const bool same_warp = earlier.thread() / WARP == me.warp();
    const uint64_t *joined = block_->joined[me.warp()][me.lane()];
    if (same_warp && earlier.tick() < joined[earlier.thread() % WARP]) return nullptr;
    return same_warp ? "no __syncwarp() between them" : "no __syncthreads() between them";
  }
  if (space == Space::Shared) return nullptr;
  return is_announced(earlier) ? "no atomic operation that hands it over"
                               : "no __threadfence() after it and before an atomic operation";
}

void Timeline::take_later(Ticks &ticks, const Ticks &others) {
  ticks.resize(others.size());
  std::transform(ticks.begin(), ticks.end(), others.begin(), ticks.begin(),
                 [](uint64_t a, uint64_t b) { return std::max(a, b); });
}

bool Timeline::has_heard(Access earlier, Me me) const {
  return block_->heard.covers(earlier) || block_->heard_by[me.warp()].covers(earlier);
}

bool Timeline::is_announced(Access earlier) const {
  return std::any_of(mailboxes_.begin(), mailboxes_.end(), [&](const auto &entry) {
    return entry.second.latest.of[static_cast<unsigned>(Scope::Device)].covers(earlier);
  });
}

}  // namespace hazards
}  // namespace cudaemu
