// Which thread of a block runs when: starting, waiting at the block's barrier, exiting, deadlock.
#include "diagnostics.h"
#include "hazards.h"

namespace cudaemu {

CUDAEMU_TLS const Thread *this_thread;
CUDAEMU_TLS BlockPosition this_block = {{0, 0, 0}, dim3(), dim3(), nullptr};
CUDAEMU_TLS Block *running_block;

namespace {

unsigned lowest_bit(unsigned bits) { return static_cast<unsigned>(__builtin_ctz(bits)); }

unsigned rotate_right(unsigned bits, unsigned by) {
  by %= 32;
  return by == 0 ? bits : bits >> by | bits << (32 - by);
}

// The lowest set bit at or after `start`, else the lowest of all.
unsigned next_bit(unsigned bits, unsigned start) {
  return (lowest_bit(rotate_right(bits, start)) + start) % 32;
}

bool same_site(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || __builtin_strcmp(a.file, b.file) == 0);
}

const char *name_of(Collective what) {
  switch (what) {
    case Collective::SyncWarp:
      return "__syncwarp";
    case Collective::ShuffleIndex:
      return "__shfl_sync";
    case Collective::ShuffleUp:
      return "__shfl_up_sync";
    case Collective::ShuffleDown:
      return "__shfl_down_sync";
    case Collective::ShuffleXor:
      return "__shfl_xor_sync";
    case Collective::Ballot:
      return "a warp vote";
    default:
      return "__reduce_*_sync";
  }
}

}  // namespace

Fiber &Block::current() const { return *static_cast<Fiber *>(const_cast<Thread *>(this_thread)); }

unsigned Block::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return static_cast<unsigned>(random_state_ >> 32);
}

unsigned Block::random_bit(unsigned bits) { return next_bit(bits, random() % 32); }

void Block::start_fiber(Fiber &fiber) {
  start_context(fiber.context, stacks_->top(fiber.rank), &Block::fiber_body);
}

void Block::prepare(const Launch &launch) {
  const unsigned count = launch.threads();
  if (!stacks_) {
    stacks_ = std::make_unique<Stacks>(MAX_THREADS);
    fibers_.resize(MAX_THREADS);
    warps_.resize(MAX_THREADS / WARP);
    for (unsigned i = 0; i < MAX_THREADS; i++) {
      fibers_[i].rank = i;
      start_fiber(fibers_[i]);
    }
  }
  launch_ = &launch;
  for (unsigned i = 0; i < count; i++) {
    const unsigned row = i / launch.shape.x;
    fibers_[i].index = {i % launch.shape.x, row % launch.shape.y, row / launch.shape.y};
  }
  for (unsigned warp = 0; warp < warps_.size(); warp++) {
    const unsigned first = warp * WARP;
    const unsigned lanes = count <= first ? 0 : count - first < WARP ? count - first : WARP;
    warps_[warp].present = lanes == WARP ? ~0u : (1u << lanes) - 1;
  }
  this_block.shape = launch.shape;
  this_block.grid = launch.grid;
}

// Sets the built-in variables and makes every thread ready.
void Block::place(uint64_t number) {
  const dim3 &grid = launch_->grid;
  number_ = number;
  this_block.index = {static_cast<unsigned>(number % grid.x),
                      static_cast<unsigned>(number / grid.x % grid.y),
                      static_cast<unsigned>(number / grid.x / grid.y)};
  live_ = launch_->threads();
  waiting_ = votes_ = 0;
  ready_warps_ = current_warp_ = 0;
  // The same schedule for the same seed, whichever OS thread runs the block.
  random_state_ = (launch_->seed + 1) * 0x9e3779b97f4a7c15 ^ (number + 1) * 0xd1b54a32d192ed03;
  if (launch_->order != Order::Ascending) {
    for (int i = 0; i < 4; i++) random();
  }
  for (unsigned warp = 0; warp * WARP < live_; warp++) {
    Warp &state = warps_[warp];
    state.at_barrier = state.at_collective = state.exited = 0;
    state.ready = state.present;
    ready_warps_ |= 1u << warp;
  }
  if (launch_->order == Order::Warp) current_warp_ = random_bit(ready_warps_);
}

bool Block::run(uint64_t number) {
  place(number);
  deadlocked_ = false;
  Fiber *first = take_next();
  this_thread = first;
  switch_context(scheduler_, first->context);
  this_thread = nullptr;
  if (deadlocked_) {  // the stacks still hold the threads that will never go on
    for (Fiber &fiber : fibers_) start_fiber(fiber);
  }
  return !deadlocked_;
}

// A fiber lives as long as its OS thread and runs one CUDA thread after the other.
void Block::fiber_body() {
  for (;;) {
    const Launch &launch = *running_block->launch_;
    launch.entry->invoke(launch.arguments);
    running_block->thread_exits();
  }
}

void Block::thread_exits() {
  Fiber &self = current();
  const unsigned warp = self.rank / WARP;
  warps_[warp].exited |= 1u << self.rank % WARP;
  live_--;
  // Threads that have exited hold up no other.
  if (live_ != 0 && waiting_ == live_) release_barrier();
  for (unsigned left = warps_[warp].at_collective; left != 0;) {
    const unsigned mask = fibers_[warp * WARP + lowest_bit(left)].mask;
    complete_collective(warp, mask);
    left &= ~mask;
  }
  switch_from(self);
}

void Block::make_ready(unsigned warp, unsigned lanes) {
  warps_[warp].ready |= lanes;
  ready_warps_ |= 1u << warp;
}

Fiber *Block::take_next() {
  if (ready_warps_ == 0) return nullptr;
  const Order order = launch_->order;
  if (order == Order::Random) {
    current_warp_ = random_bit(ready_warps_);
  } else if ((ready_warps_ >> current_warp_ & 1) == 0) {
    current_warp_ =
        order == Order::Warp ? random_bit(ready_warps_) : next_bit(ready_warps_, current_warp_);
  }
  Warp &warp = warps_[current_warp_];
  const unsigned lane = order == Order::Ascending ? lowest_bit(warp.ready) : random_bit(warp.ready);
  warp.ready &= ~(1u << lane);
  if (warp.ready == 0) ready_warps_ &= ~(1u << current_warp_);
  return &fibers_[current_warp_ * WARP + lane];
}

// The running thread cannot go on (or is done): another one takes over the OS thread.
void Block::switch_from(Fiber &fiber) {
  Fiber *next = take_next();
  if (next == &fiber) return;
  if (next == nullptr) {
    if (live_ != 0) report_deadlock();
    switch_context(fiber.context, scheduler_);
    return;
  }
  this_thread = next;
  switch_context(fiber.context, next->context);
}

int Block::barrier(Vote vote, bool predicate, Site at) {
  Fiber &self = current();
  if (waiting_ == 0) {
    barrier_site_ = at;
  } else if (!same_site(barrier_site_, at)) {
    diagnose(at, "threads of one block meet at different barriers, this one and " +
                     describe_site(barrier_site_));
  }
  self.site = at;
  votes_ += predicate;
  warps_[self.rank / WARP].at_barrier |= 1u << self.rank % WARP;
  if (++waiting_ == live_) release_barrier();
  switch_from(self);
  switch (vote) {
    case Vote::Any:
      return passed_votes_ != 0;
    case Vote::All:
      return passed_votes_ == passed_threads_;
    case Vote::Count:
      return static_cast<int>(passed_votes_);
    default:
      return 0;
  }
}

void Block::release_barrier() {
  passed_votes_ = votes_;
  passed_threads_ = waiting_;
  votes_ = waiting_ = 0;
  for (unsigned warp = 0; warp * WARP < launch_->threads(); warp++) {
    if (warps_[warp].at_barrier == 0) continue;
    make_ready(warp, warps_[warp].at_barrier);
    warps_[warp].at_barrier = 0;
  }
  hazards::barrier_released();
}

// To the end of the queue: every other ready thread gets its turn before this one.
void Block::yield() {
  Fiber &self = current();
  const unsigned own_warp = self.rank / WARP;
  make_ready(own_warp, 1u << self.rank % WARP);
  if (launch_->order != Order::Ascending) {
    current_warp_ = random_bit(ready_warps_);
    switch_from(self);
    return;
  }
  const unsigned above = warps_[own_warp].ready & ~((2u << self.rank % WARP) - 1);
  const unsigned warp = above != 0 ? own_warp : next_bit(ready_warps_, own_warp + 1);
  const unsigned lane = lowest_bit(above != 0 ? above : warps_[warp].ready);
  current_warp_ = warp;
  warps_[warp].ready &= ~(1u << lane);
  if (warps_[warp].ready == 0) ready_warps_ &= ~(1u << warp);
  Fiber &next = fibers_[warp * WARP + lane];
  if (&next == &self) return;
  this_thread = &next;
  switch_context(self.context, next.context);
}

void Block::preempt() {
  if (launch_->order != Order::Ascending) {
    if (random() % 4 == 0) yield();
  } else if (++atomics_ % 4096 == 0) {
    yield();  // a thread that spins on a lock must let its holder run
  }
}

unsigned Block::active_mask() const {
  const Warp &warp = warps_[current().rank / WARP];
  return warp.present & ~warp.exited & ~warp.at_barrier & ~warp.at_collective;
}

// Neighbouring threads that wait in the same way are named together.
void Block::report_deadlock() {
  deadlocked_ = true;
  const auto state_of = [this](unsigned rank) -> std::string {
    const Warp &warp = warps_[rank / WARP];
    const unsigned bit = 1u << rank % WARP;
    const Fiber &fiber = fibers_[rank];
    if (warp.exited & bit) return "exited";
    if (warp.at_barrier & bit) return "wait at __syncthreads, " + describe_site(fiber.site);
    char mask[32];
    __builtin_snprintf(mask, sizeof mask, " with mask 0x%08x, ", fiber.mask);
    return std::string("wait at ") + name_of(fiber.collective) + mask + describe_site(fiber.site);
  };
  constexpr unsigned shown_groups = 8;
  std::string text = "deadlock in block " + std::to_string(number_);
  const unsigned count = launch_->threads();
  unsigned groups = 0;
  for (unsigned first = 0, next; first < count; first = next) {
    const std::string state = state_of(first);
    for (next = first + 1; next < count && state_of(next) == state;) next++;
    if (++groups > shown_groups) continue;
    text += groups == 1 ? ": threads " : "; threads ";
    text += std::to_string(first) + " to " + std::to_string(next - 1) + " " + state;
  }
  if (groups > shown_groups) text += "; and more";
  diagnose_line("deadlock", text);
}

int block_barrier(Vote vote, bool predicate, Site at) {
  return running_block->barrier(vote, predicate, at);
}

void yield() { running_block->yield(); }

unsigned active_mask() { return running_block->active_mask(); }

void unsupported(const char *what, Site at) {
  diagnose(at, std::string(what) + " is not possible here");
}

}  // namespace cudaemu
