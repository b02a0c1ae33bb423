// The block that an OS thread is running: its threads as fibers, who of them may run, who waits.
//
// Every set of threads is a bit mask, one word for each warp and one word for the set of warps, so
// that releasing a barrier or finding the next thread takes a few instructions.
#pragma once
#include <memory>
#include <vector>

#include "fiber.h"
#include "runtime.h"

namespace cudaemu {

constexpr unsigned WARP = 32;
constexpr unsigned MAX_THREADS = 1024;

// Which ready thread goes on when the running one waits.
enum class Order : uint32_t {
  Ascending,  // the lowest of the same warp, then the warps after it
  Random,     // any thread
  Warp,       // any of the same warp while one is ready: a warp runs far ahead of the others
};

struct Launch {
  const Entry *entry;
  void **arguments;
  dim3 grid;
  dim3 shape;
  size_t dynamic_shared;
  Order order;
  uint64_t seed;

  unsigned threads() const { return shape.x * shape.y * shape.z; }
  uint64_t blocks() const { return static_cast<uint64_t>(grid.x) * grid.y * grid.z; }
};

struct Fiber : Thread {
  Context context;
  Site site;  // where it waits
  Collective collective;
  unsigned mask;  // and with which lanes
  int argument;
  int width;
};

struct Warp {
  unsigned present;  // lanes that the block has; the last warp may have fewer than 32
  unsigned ready;
  unsigned at_barrier;
  unsigned at_collective;
  unsigned exited;
  Value given[WARP];
  Value received[WARP];
};

class Block {
 public:
  // Makes the fibers for this launch, reusing the stacks of earlier ones.
  void prepare(const Launch &launch);
  // Runs one block to its end. False: its threads wait for each other for ever.
  bool run(uint64_t number);

  int barrier(Vote vote, bool predicate, Site at);
  Value collective(Collective what, unsigned mask, Value value, int argument, int width, Site at);
  void yield();
  void preempt();  // an atomic operation: a point at which another thread may come first
  unsigned active_mask() const;

  Fiber &current() const;
  uint64_t number() const { return number_; }
  const Launch &launch() const { return *launch_; }

 private:
  static void fiber_body();
  void start_fiber(Fiber &fiber);
  void place(uint64_t number);
  void make_ready(unsigned warp, unsigned lanes);
  Fiber *take_next();
  void switch_from(Fiber &fiber);
  void release_barrier();
  void complete_collective(unsigned warp, unsigned mask);
  void thread_exits();
  void report_deadlock();
  unsigned random();
  unsigned random_bit(unsigned bits);

  const Launch *launch_ = nullptr;
  uint64_t number_ = 0;
  uint64_t random_state_ = 1;
  unsigned ready_warps_ = 0;
  unsigned current_warp_ = 0;
  unsigned live_ = 0;     // threads that have not exited
  unsigned waiting_ = 0;  // of these, at the block's barrier
  unsigned votes_ = 0;    // predicates that were true at the barrier now filling
  unsigned passed_votes_ = 0;
  unsigned passed_threads_ = 0;  // the same of the barrier last released
  unsigned atomics_ = 0;
  bool deadlocked_ = false;
  Site barrier_site_ = {};
  Context scheduler_;
  std::unique_ptr<Stacks> stacks_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
};

// The block of this OS thread, null while it runs none.
extern CUDAEMU_TLS Block *running_block;

}  // namespace cudaemu
