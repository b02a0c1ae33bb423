// The scheduler of a block's threads: start, barriers, yielding, exit.
#include <algorithm>

#include "diagnostics.h"
#include "races.h"
#include "traffic.h"
#include "turns.h"

namespace cudaemu {

CUDAEMU_TLS const Thread *this_thread;
CUDAEMU_TLS BlockPosition this_block = {{0, 0, 0}, dim3(), dim3(), nullptr};
CUDAEMU_TLS Block *running_block;

namespace {

// Random pauses of a block: enough to vary the order of blocks, few enough to end soon.
constexpr unsigned MAX_RANDOM_PAUSES = 16;
// A block is paused after this many atomic operations, since it may be waiting for another block.
constexpr unsigned TURN = 1024;

bool same_site(Site a, Site b) {
  return a.line == b.line && (a.file == b.file || __builtin_strcmp(a.file, b.file) == 0);
}

}  // namespace

unsigned Block::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return static_cast<unsigned>(random_state_ >> 32);
}

unsigned Block::random_bit(unsigned bits) { return next_bit(bits, random() % 32); }

Block::Block(bool guarded) : stacks_(MAX_THREADS, guarded) {
  for (unsigned i = 0; i < MAX_THREADS; i++) fibers_[i].rank = i;
}

void Block::fill_stacks(unsigned first, unsigned last) {
  for (unsigned i = first; i < last; i++) {
    idle_stacks_[i].place = start_context(stacks_.top(i), &Block::run_threads);
    fibers_[i].context.place = nullptr;
  }
  filled_ = idle_ = last;
}

void Block::prepare(const Launch &launch, void *dynamic_shared) {
  const unsigned count = launch.threads();
  launch_ = &launch;
  order_ = launch.order;
  polls_ = 0;
  if (count > filled_) fill_stacks(filled_, count);
  for (unsigned i = 0; i < count; i++) {
    const unsigned row = i / launch.shape.x;
    fibers_[i].index = {i % launch.shape.x, row % launch.shape.y, row / launch.shape.y};
  }
  for (unsigned warp = 0; warp < MAX_THREADS / WARP; warp++) {
    const unsigned first = warp * WARP;
    const unsigned lanes = count <= first ? 0 : count - first < WARP ? count - first : WARP;
    warps_[warp].present = lanes == WARP ? ~0u : (1u << lanes) - 1;
  }
  position_ = {{0, 0, 0}, launch.shape, launch.grid, dynamic_shared};
}

// Sets the built-in variables and makes every thread ready.
void Block::place(uint64_t number) {
  const dim3 &grid = launch_->grid;
  number_ = number;
  position_.index = {static_cast<unsigned>(number % grid.x),
                     static_cast<unsigned>(number / grid.x % grid.y),
                     static_cast<unsigned>(number / grid.x / grid.y)};
  live_ = launch_->threads();
  paths_.assign(launch_->watched ? live_ : 0, {});
  waiting_ = votes_ = random_pauses_ = 0;
  ready_warps_ = current_warp_ = sleepers_ = 0;
  // The schedule depends on seed and block number only, not on the OS thread.
  random_state_ = (launch_->seed + 1) * 0x9e3779b97f4a7c15 ^ (number + 1) * 0xd1b54a32d192ed03;
  if (order_ != Order::Ascending) {
    for (int i = 0; i < 4; i++) random();
  }
  for (unsigned warp = 0; warp * WARP < live_; warp++) {
    Warp &state = warps_[warp];
    state.at_barrier = state.at_collective = state.exited = state.asleep = 0;
    state.ended = state.returning = 0;
    state.ready = state.present;
    ready_warps_ |= 1u << warp;
  }
  if (order_ == Order::Warp) current_warp_ = random_bit(ready_warps_);
}

Outcome Block::start(uint64_t number) {
  place(number);
  return resume();
}

Outcome Block::resume() {
  running_block = this;
  this_block = position_;
  outcome_ = Outcome::Ended;
  switch_to(*take_next(), scheduler_);
  this_thread = nullptr;
  running_block = nullptr;
  if (outcome_ == Outcome::Abandoned) forget();
  return outcome_;
}

// Resets the stacks of threads that will not be resumed.
void Block::forget() { fill_stacks(0, filled_); }

// The main function of every stack: runs one CUDA thread after the other.
void Block::run_threads() {
  for (;;) {
    const Launch &launch = *running_block->launch_;
    launch.entry->invoke(launch.arguments);
    running_block->thread_exits();
  }
}

// Ends the running thread. Returns if the next thread to run has not started: it starts on this
// stack.
void Block::thread_exits() {
  Fiber &self = current();
  self.context.place = nullptr;
  const unsigned warp = self.rank / WARP;
  const unsigned lane = 1u << self.rank % WARP;
  warps_[warp].exited |= lane;
  if ((warps_[warp].returning & lane) == 0) warps_[warp].ended |= lane;
  live_--;
  // The other threads do not wait for this one any more.
  if (live_ != 0 && waiting_ == live_) release_barrier();
  for (unsigned left = warps_[warp].at_collective; left != 0;) {
    const unsigned mask = fibers_[warp * WARP + lowest_bit(left)].request.mask;
    complete_collective(warp, mask);
    left &= ~mask;
  }
  if (ready_warps_ == 0 && sleepers_ != 0) wake_sleepers();
  Fiber *next = take_next();
  if (next == nullptr) {
    if (live_ != 0) report_deadlock();
    switch_context(idle_stacks_[idle_++], scheduler_);
  } else if (next->context.place == nullptr) {
    this_thread = next;  // it starts on this stack
  } else {
    switch_to(*next, idle_stacks_[idle_++]);
  }
}

Value Block::switch_or_stop(Fiber &fiber) {
  if (ready_warps_ == 0 && sleepers_ != 0) wake_sleepers();
  Fiber *next = take_next();
  if (next == &fiber) return fiber.context.result;
  if (next != nullptr) return switch_to(*next, fiber.context);
  report_deadlock();
  return switch_context(fiber.context, scheduler_);
}

// The fast path for threads that are neither first nor last at the barrier. It calls no function, so
// that it needs no stack frame and the switch compiles to a jump.
inline void Block::barrier(Site at) {
  Fiber &self = current();
  const bool between = at.line == barrier_site_.line && at.file == barrier_site_.file &&
                       waiting_ != 0 && waiting_ + 1 != live_ && !launch_->watched;
  if (!between) {
    arrive_at_barrier(false, at);
    return;
  }
  self.waits_at(at);
  warps_[self.rank / WARP].at_barrier |= 1u << self.rank % WARP;
  waiting_++;
  switch_from(self);
}

void Block::arrive_at_barrier(bool predicate, Site at) {
  Fiber &self = current();
  if (waiting_ == 0) {
    barrier_site_ = at;
    barrier_thread_ = self.rank;
  } else if (!same_site(barrier_site_, at)) {
    diagnose(at, "barrier divergence: threads of one block wait at different barriers, this one and " +
                     describe_site(barrier_site_));
  } else if (launch_->watched) {
    check_path(at);
  }
  self.waits_at(at);
  votes_ += predicate;
  warps_[self.rank / WARP].at_barrier |= 1u << self.rank % WARP;
  if (++waiting_ == live_) release_barrier();
  switch_from(self);
}

int Block::barrier(Vote vote, bool predicate, Site at) {
  arrive_at_barrier(predicate, at);
  switch (vote) {
    case Vote::Any:
      return passed_votes_ != 0;
    case Vote::All:
      return passed_votes_ == passed_threads_;
    default:
      return static_cast<int>(passed_votes_);
  }
}

void BarrierPath::enter(int line, bool loop) {
  if (depth < MOST) {
    Level &level = levels[depth];
    const bool again = loop && level.loop && level.line == line;
    level = {line, loop, again ? level.iteration + 1 : 0};
    if (depth + 1 < MOST) levels[depth + 1] = {};
  }
  depth++;
}

std::string BarrierPath::difference(const BarrierPath &other) const {
  for (unsigned i = 0; i < std::max(depth, other.depth) && i < MOST; i++) {
    const Level &mine = levels[i], &theirs = other.levels[i];
    const bool same = i < depth && i < other.depth && mine.line == theirs.line &&
                      mine.loop == theirs.loop;
    if (!same) {
      const Level &level = i < depth ? mine : theirs;
      return std::string(level.loop ? "the loop" : "the branch") + " at line " +
             std::to_string(level.line);
    }
    if (mine.iteration != theirs.iteration) {
      return "the same iteration of the loop at line " + std::to_string(mine.line);
    }
  }
  return "";
}

// Reports threads that reach a barrier in different branches or loop iterations.
void Block::check_path(Site at) {
  const std::string where = path().difference(paths_[barrier_thread_]);
  if (where.empty()) return;
  diagnose(at, "barrier divergence: not all threads that wait here are in " + where);
}

// Reports threads that ended without reaching a barrier or warp-level operation that waits for them.
void Block::report_skipped(const std::string &call, unsigned first, unsigned last, Site at) {
  const std::string threads = first == last ? "thread " + std::to_string(first)
                                            : "threads " + std::to_string(first) + " to " +
                                                  std::to_string(last);
  const std::string place = describe_site(at) + ": ";
  diagnose_line(place + call, place + "barrier divergence: " + threads + " of block " +
                                  std::to_string(number_) + (first == last ? " ends" : " end") +
                                  " without reaching this " + call);
}

void Block::check_all_arrived() {
  unsigned first = MAX_THREADS, last = 0;
  for (unsigned warp = 0; warp * WARP < launch_->threads(); warp++) {
    if (warps_[warp].ended == 0) continue;
    first = std::min(first, warp * WARP + lowest_bit(warps_[warp].ended));
    last = warp * WARP + highest_bit(warps_[warp].ended);
  }
  if (first <= last) report_skipped("__syncthreads()", first, last, barrier_site_);
}

void Block::release_barrier() {
  if (live_ != launch_->threads()) check_all_arrived();
  passed_votes_ = votes_;
  passed_threads_ = waiting_;
  votes_ = waiting_ = 0;
  for (unsigned warp = 0; warp * WARP < launch_->threads(); warp++) {
    if (warps_[warp].at_barrier == 0) continue;
    make_ready(warp, warps_[warp].at_barrier);
    warps_[warp].at_barrier = 0;
  }
  if (launch_->watched) races::barrier_released();
  if (launch_->counted) traffic::barrier_released();
}

// Lets every other ready thread run before this one continues.
void Block::yield() {
  Fiber &self = current();
  const unsigned own_warp = self.rank / WARP;
  make_ready(own_warp, 1u << self.rank % WARP);
  if (order_ != Order::Ascending) {
    current_warp_ = random_bit(ready_warps_);
    switch_from(self);
    return;
  }
  const unsigned above = warps_[own_warp].ready & ~((2u << self.rank % WARP) - 1);
  const unsigned warp = above != 0 ? own_warp : next_bit(ready_warps_, own_warp + 1);
  const unsigned lane = lowest_bit(above != 0 ? above : warps_[warp].ready);
  current_warp_ = warp;
  Fiber *next = take(warp, lane);
  if (next != &self) switch_to(*next, self.context);
}

void Block::preempt() {
  if (order_ != Order::Ascending) {
    const unsigned chance = random() % 16;
    if (chance < 4) {
      yield();
    } else if (chance == 4 && random_pauses_++ < MAX_RANDOM_PAUSES) {
      pause();
    } else if (++atomics_ % TURN == 0) {
      pause();  // the thread that holds a lock may be in another block
    }
  } else if (++atomics_ % 4096 == 0) {
    yield();  // a thread that spins on a lock must let the thread that holds it run
  }
}

// After some polling loads, lets other threads of the block run; after more, other blocks.
void Block::polled() {
  if (order_ != Order::Ascending) preempt();
  if (++polls_ % 32 == 0) yield();
  if (polls_ % (32 * 64) == 0) pause();
}

// Suspends the thread until all other ready threads of the block have run; after some turns, lets
// other blocks run too.
void Block::sleep() {
  Fiber &self = current();
  if ((ready_warps_ == 0 && ++polls_ % 4 == 0) || launch_->overdue()) {
    pause();
  } else {
    warps_[self.rank / WARP].asleep |= 1u << self.rank % WARP;
    sleepers_++;
    switch_from(self);
  }
}

void Block::wake_sleepers() {
  sleepers_ = 0;
  for (unsigned warp = 0; warp * WARP < launch_->threads(); warp++) {
    if (warps_[warp].asleep == 0) continue;
    make_ready(warp, warps_[warp].asleep);
    warps_[warp].asleep = 0;
  }
}

// Returns to the OS thread's loop, which runs other blocks before it resumes this one.
void Block::pause() {
  Fiber &self = current();
  const unsigned warp = self.rank / WARP;
  make_ready(warp, 1u << self.rank % WARP);
  wake_sleepers();
  current_warp_ = next_bit(ready_warps_, warp + 1);
  outcome_ = Outcome::Paused;
  switch_context(self.context, scheduler_);
}

// Ends the block; the running thread does not continue.
void Block::abandon() {
  outcome_ = Outcome::Abandoned;
  switch_context(current().context, scheduler_);
}

unsigned Block::not_returned() const {
  const Warp &warp = warps_[current().rank / WARP];
  return warp.present & ~(warp.exited & warp.returning);
}

void Block::return_early() {
  Fiber &self = current();
  warps_[self.rank / WARP].returning |= 1u << self.rank % WARP;
}

BarrierPath &Block::path() { return paths_[current().rank]; }

bool Block::is_local_of_another(const char *address) const {
  const char *own = static_cast<const char *>(__builtin_frame_address(0));
  return stacks_.contains(address) && stacks_.number(address) != stacks_.number(own);
}

unsigned Block::active_mask() const {
  const Warp &warp = warps_[current().rank / WARP];
  return warp.present & ~warp.exited & ~warp.at_barrier & ~warp.at_collective;
}

void block_barrier(Site at) { running_block->barrier(at); }

int block_barrier(Vote vote, bool predicate, Site at) {
  return running_block->barrier(vote, predicate, at);
}

void BarrierScope::enter_scope(int line, bool loop) { running_block->path().enter(line, loop); }
void BarrierScope::leave_scope() { running_block->path().leave(); }

void return_early() { running_block->return_early(); }

void yield() { running_block->sleep(); }

unsigned active_mask() { return running_block->active_mask(); }

void assertion_failed(const char *expression, Site at) {
  diagnose(at, std::string("assertion failed: ") + expression);
  running_block->abandon();
}

void unsupported(const char *what, Site at) {
  diagnose(at, std::string(what) + " is not possible here");
}

}  // namespace cudaemu
