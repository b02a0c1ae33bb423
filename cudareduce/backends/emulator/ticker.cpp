#include "ticker.h"

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "block.h"

namespace cudaemu {
namespace {

constexpr long FIRST_NS = 10'000'000;  // most blocks end before the first tick
constexpr long NEXT_NS = 250'000;
constexpr long RETRY_NS = 17'000;  // after a tick outside kernel code
constexpr int SIGNAL = SIGVTALRM;

thread_local Segment code;
thread_local timer_t timer;
thread_local pid_t owner = 0;  // process of the timer; a forked process does not inherit timers

struct sigaction previous;

void set_timer(long first_ns, long next_ns) {
  const itimerspec times = {{0, next_ns}, {0, first_ns}};
  timer_settime(timer, 0, &times, nullptr);
}

// Preempts only kernel code, since calls of the runtime are short and not reentrant. The handler runs
// on the stack of the interrupted thread and returns when that thread is resumed. Ticks are blocked
// until the handler has begun, since on a busy machine the next tick may be immediate.
void on_tick(int number, siginfo_t *info, void *context) {
  if (running_block == nullptr || this_thread == nullptr) {
    // The tick may belong to another runtime in this process.
    if ((previous.sa_flags & SA_SIGINFO) != 0) previous.sa_sigaction(number, info, context);
    return;
  }
  if (code.bytes == 0) return;  // a late tick after the end of a launch
  if (!code.contains(program_counter_of(context))) {
    set_timer(RETRY_NS, NEXT_NS);
    return;
  }
  const int error = errno;
  sigset_t ticks;
  sigemptyset(&ticks);
  sigaddset(&ticks, SIGNAL);
  pthread_sigmask(SIG_UNBLOCK, &ticks, nullptr);
  running_block->sleep();  // the thread may be waiting for another one
  errno = error;
}

bool handle_ticks() {
  struct sigaction action = {};
  action.sa_sigaction = on_tick;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  return sigaction(SIGNAL, &action, &previous) == 0;
}

void make_timer() {
  static const bool handled = handle_ticks();
  if (!handled) return;
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = SIGNAL;
  event._sigev_un._tid = static_cast<pid_t>(syscall(SYS_gettid));
  if (timer_create(CLOCK_MONOTONIC, &event, &timer) == 0) owner = getpid();
}

}  // namespace

Ticker::Ticker(Segment kernel) {
  code = kernel;
  if (code.bytes == 0) return;
  if (owner != getpid()) make_timer();
  if (owner == getpid()) set_timer(FIRST_NS, NEXT_NS);
}

Ticker::~Ticker() {
  if (code.bytes == 0) return;
  code = Segment{};  // first, since a tick would otherwise set the timer again
  if (owner == getpid()) set_timer(0, 0);
}

uint64_t thread_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void *program_counter_of(void *signal_context) {
  const auto *machine = static_cast<const ucontext_t *>(signal_context);
#if defined(__x86_64__)
  return reinterpret_cast<void *>(machine->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
  return reinterpret_cast<void *>(machine->uc_mcontext.pc);
#else
  (void)machine;
  return nullptr;
#endif
}

}  // namespace cudaemu
