// A block: its threads as fibers, and the state of each: ready, waiting or exited.
//
// Sets of threads are bit masks, with one word per warp and one word for the set of warps. Releasing a
// barrier and finding the next thread therefore take a few instructions.
#pragma once
#include <string>
#include <vector>

#include "fiber.h"
#include "runtime.h"

namespace cudaemu {

constexpr unsigned WARP = 32;
constexpr unsigned MAX_THREADS = 1024;

// The rule that selects the next thread to run when the running one waits.
enum class Order : uint32_t {
  Ascending,  // the lowest ready thread of the same warp, then of the following warps
  Random,     // a random ready thread
  Warp,       // a random ready thread of the same warp, so that a warp runs far ahead of the others
};

// The grid barrier of a cooperative launch.
struct GridBarrier {
  uint64_t arrived = 0;
  uint64_t passed = 0;
  uint64_t ended = 0;  // blocks that have ended
};

uint64_t thread_ns();  // processor time of this OS thread

struct Launch {
  const Entry *entry;
  void **arguments;
  dim3 grid;
  dim3 shape;
  size_t dynamic_shared;
  Order order;
  uint64_t seed;
  bool watched;  // every access is checked for data races, on one OS thread
  bool counted;  // memory traffic is counted, on one OS thread
  uint64_t first, last;  // range of blocks to run, without `last`: all, or a single one
  uint64_t until_ns;     // time limit on the clock of its OS thread; 0: none
  GridBarrier &barrier;

  unsigned threads() const { return shape.x * shape.y * shape.z; }
  uint64_t blocks() const { return static_cast<uint64_t>(grid.x) * grid.y * grid.z; }
  bool overdue() const { return until_ns != 0 && thread_ns() > until_ns; }
};

// A thread of the block. Its size is one cache line, since every switch accesses another thread.
struct alignas(64) Fiber : Thread {
  // `place` is null before the thread starts and after it has exited. While the thread waits at a
  // warp-level operation, `result` is the value that it contributes.
  Context context;
  const char *file;  // with `line`, the call at which it waits
  int line;
  Request request;  // the warp-level operation at which it waits

  void waits_at(Site at) { file = at.file, line = at.line; }
  Site site() const { return {file, line}; }
};

// The branches and loop iterations that a thread is in, of those that contain a barrier (see
// BarrierScope).
struct BarrierPath {
  static constexpr unsigned MOST = 8;
  struct Level {
    int line;
    bool loop;
    unsigned iteration;
  };
  unsigned depth = 0;
  Level levels[MOST] = {};

  void enter(int line, bool loop);
  void leave() { depth--; }
  // Describes the outermost branch or loop in which two threads differ; empty if there is none.
  std::string difference(const BarrierPath &other) const;
};

struct Warp {
  unsigned present;  // lanes that exist; the last warp of a block may have fewer than 32
  unsigned ready;
  unsigned at_barrier;
  unsigned at_collective;
  unsigned exited;
  unsigned ended;  // exited at the end of the kernel, not by a return statement
  unsigned returning;  // lanes that have reached a return statement
  unsigned asleep;
};

// Why a block has stopped running on its OS thread.
enum class Outcome {
  Ended,
  Paused,   // it may wait for another block, and is resumed later
  Abandoned,  // a deadlock, or a fault after which the block cannot continue
};

const char *name_of(Collective what);

class Block {
 public:
  // `guarded` stacks have guard pages: a stack overflow faults.
  explicit Block(bool guarded);
  // Creates the threads for this launch.
  void prepare(const Launch &launch, void *dynamic_shared);
  Outcome start(uint64_t number);
  Outcome resume();
  void forget();  // discards a paused block

  void barrier(Site at);
  int barrier(Vote vote, bool predicate, Site at);
  static Value collective(Request request, Value value, Site at);
  __attribute__((noinline)) void yield();
  void preempt();  // before an atomic operation: under a random order another thread may run first
  void polled();   // the thread has read a value that it may be polling
  void sleep();    // suspends the thread until other threads, in this or another block, have run
  void pause();    // suspends the block, so that other blocks run
  void abandon();
  unsigned active_mask() const;
  unsigned not_returned() const;  // lanes of the current warp that have not reached a return
  void return_early();
  BarrierPath &path();
  // True if an address is on the stack of another thread of this block.
  bool is_local_of_another(const char *address) const;
  unsigned random();
  Order order() const { return order_; }

  Fiber &current() const;
  uint64_t number() const { return number_; }
  const Launch &launch() const { return *launch_; }

 private:
  static void run_threads();
  void fill_stacks(unsigned first, unsigned last);
  void place(uint64_t number);
  void make_ready(unsigned warp, unsigned lanes);
  void wake_sleepers();
  Fiber *take_next();
  Fiber *take(unsigned warp, unsigned lane);
  Value switch_from(Fiber &fiber);
  __attribute__((noinline)) Value switch_or_stop(Fiber &fiber);
  Value switch_to(Fiber &next, Context &from);
  __attribute__((noinline)) void release_barrier();
  __attribute__((noinline)) void complete_collective(unsigned warp, unsigned mask);
  void thread_exits();
  __attribute__((noinline)) void arrive_at_barrier(bool predicate, Site at);
  __attribute__((noinline)) static Value arrive_at_collective(Request what, Value value, Site at);
  __attribute__((cold)) void report_deadlock();
  __attribute__((cold)) void report_skipped(const std::string &call, unsigned first,
                                            unsigned last, Site at);
  void check_path(Site at);
  void check_all_arrived();
  unsigned random_bit(unsigned bits);

  const Launch *launch_ = nullptr;
  Order order_ = Order::Ascending;
  uint64_t number_ = 0;
  uint64_t random_state_ = 1;
  unsigned ready_warps_ = 0;
  unsigned current_warp_ = 0;
  unsigned live_ = 0;     // threads that have not exited
  unsigned waiting_ = 0;  // live threads that wait at the block's barrier
  unsigned votes_ = 0;    // true predicates of the threads at the current barrier
  unsigned passed_votes_ = 0;
  unsigned passed_threads_ = 0;  // number of threads at the barrier last released
  unsigned atomics_ = 0;
  unsigned polls_ = 0;
  unsigned random_pauses_ = 0;
  unsigned sleepers_ = 0;
  Outcome outcome_ = Outcome::Ended;
  BlockPosition position_ = {{0, 0, 0}, dim3(), dim3(), nullptr};
  Site barrier_site_ = {};
  unsigned barrier_thread_ = 0;  // the first to arrive
  std::vector<BarrierPath> paths_;  // by thread, in watched launches
  Context scheduler_;
  Warp warps_[MAX_THREADS / WARP];
  Fiber fibers_[MAX_THREADS];
  // A thread has a stack from its start to its exit. The most recently released stack is reused
  // first, since it is still in the CPU cache.
  Stacks stacks_;
  Context idle_stacks_[MAX_THREADS];
  unsigned filled_ = 0;  // stacks in use: the most threads that a block has had
  unsigned idle_ = 0;
};

// The block of this OS thread, null while it runs none.
extern CUDAEMU_TLS Block *running_block;

}  // namespace cudaemu
