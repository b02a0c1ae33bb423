// Warp-level operations: shuffles, votes, reductions, __syncwarp.
#include <algorithm>

#include "diagnostics.h"
#include "races.h"
#include "traffic.h"
#include "turns.h"

namespace cudaemu {
namespace {

// The value read from a lane that does not participate, undefined in CUDA: NaN, or -1.
constexpr Value UNDEFINED = ~Value{0};

bool is_shuffle(Collective what) {
  return what >= Collective::ShuffleIndex && what <= Collective::ShuffleXor;
}

// The lane whose value `lane` receives. Lanes form groups of `width`; a lane whose source would be
// outside its group receives its own value.
unsigned source_lane(Collective how, unsigned lane, int argument, int width) {
  const unsigned group = lane & ~(static_cast<unsigned>(width) - 1);
  const int last = static_cast<int>(group) + width - 1;
  const int here = static_cast<int>(lane);
  switch (how) {
    case Collective::ShuffleIndex:
      return group + (static_cast<unsigned>(argument) & (static_cast<unsigned>(width) - 1));
    case Collective::ShuffleUp:
      return here - argument < static_cast<int>(group) ? lane : lane - argument;
    case Collective::ShuffleDown:
      return here + argument > last ? lane : lane + argument;
    default: {
      const int source = here ^ argument;
      return source > last ? lane : static_cast<unsigned>(source);
    }
  }
}

uint32_t combine(Collective how, uint32_t a, uint32_t b) {
  const auto as_signed = [](uint32_t value) { return static_cast<int32_t>(value); };
  switch (how) {
    case Collective::ReduceAdd:
      return a + b;
    case Collective::ReduceMinSigned:
      return static_cast<uint32_t>(std::min(as_signed(a), as_signed(b)));
    case Collective::ReduceMaxSigned:
      return static_cast<uint32_t>(std::max(as_signed(a), as_signed(b)));
    case Collective::ReduceMinUnsigned:
      return std::min(a, b);
    case Collective::ReduceMaxUnsigned:
      return std::max(a, b);
    case Collective::ReduceAnd:
      return a & b;
    case Collective::ReduceOr:
      return a | b;
    default:
      return a ^ b;
  }
}

// A note and not a fault, since a kernel may discard the undefined value.
__attribute__((cold)) void note_undefined(const Fiber &fiber, unsigned source) {
  const bool named = source < WARP && (fiber.request.mask >> source & 1) != 0;
  note(describe_site(fiber.site()) + ": " + name_of(fiber.request.what) + " reads lane " +
       std::to_string(source) + ", which " +
       (named ? "has exited or does not exist" : "is not in its mask") +
       ", so its value is undefined");
}

uint32_t reduce_lanes(Collective how, unsigned lanes, const Value *given) {
  uint32_t result = 0;
  bool first = true;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const unsigned lane = lowest_bit(left);
    const uint32_t value = static_cast<uint32_t>(given[lane]);
    if (how == Collective::Ballot) {
      result |= value << lane;
    } else {
      result = first ? value : combine(how, result, value);
    }
    first = false;
  }
  return result;
}

// Replaces the value that each lane contributes by the value that it receives.
void exchange(Fiber *fibers, unsigned lanes, Collective what) {
  Value given[WARP];
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    given[lowest_bit(left)] = fibers[lowest_bit(left)].context.result;
  }
  if (!is_shuffle(what)) {
    const uint32_t result = reduce_lanes(what, lanes, given);
    for (unsigned left = lanes; left != 0; left &= left - 1) {
      fibers[lowest_bit(left)].context.result = result;
    }
    return;
  }
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const unsigned lane = lowest_bit(left);
    const Request &request = fibers[lane].request;
    const unsigned source = source_lane(what, lane, request.argument, request.width);
    const bool takes_part = source < WARP && (lanes >> source & 1) != 0;
    fibers[lane].context.result = takes_part ? given[source] : UNDEFINED;
    if (!takes_part) note_undefined(fibers[lane], source);
  }
}

}  // namespace

// Completes the operation if every lane of the mask has reached it. It does not wait for lanes that
// have exited or do not exist.
void Block::complete_collective(unsigned warp_number, unsigned mask) {
  Warp &warp = warps_[warp_number];
  Fiber *fibers = &fibers_[warp_number * WARP];
  const unsigned lanes = mask & warp.present & ~warp.exited;
  if (lanes == 0 || (warp.at_collective & lanes) != lanes) return;

  const Collective what = fibers[lowest_bit(lanes)].request.what;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const Request &request = fibers[lowest_bit(left)].request;
    if (request.mask != mask || request.what != what) return;
  }
  if (const unsigned ended = mask & warp.ended; ended != 0) {
    const unsigned first = warp_number * WARP;
    report_skipped(std::string(name_of(what)) + ", whose mask names them",
                   first + lowest_bit(ended), first + highest_bit(ended),
                   fibers[lowest_bit(lanes)].site());
  }
  if (what == Collective::SyncWarp) {
    if (launch_->watched) races::warp_synchronised(warp_number, lanes);
  } else {
    exchange(fibers, lanes, what);
  }
  if (launch_->counted) {
    traffic::warp_together(warp_number, lanes, what != Collective::SyncWarp);
  }
  warp.at_collective &= ~lanes;
  make_ready(warp_number, lanes);
}

// As at a barrier, the fast path needs no stack frame. Static, since with `this` the arguments would
// not fit into registers.
inline Value Block::collective(Request request, Value value, Site at) {
  Block &block = *running_block;
  Fiber &self = block.current();
  Warp &warp = block.warps_[self.rank / WARP];
  const unsigned own = 1u << self.rank % WARP;
  const unsigned missing = request.mask & warp.present & ~warp.exited & ~warp.at_collective;
  const bool only_waits = (missing & own) != 0 && missing != own;
  if (!only_waits) return arrive_at_collective(request, value, at);
  self.request = request;
  self.context.result = value;
  self.waits_at(at);
  warp.at_collective |= own;
  return block.switch_from(self);
}

Value Block::arrive_at_collective(Request request, Value value, Site at) {
  Block &block = *running_block;
  Fiber &self = block.current();
  const unsigned lane = self.rank % WARP;
  if ((request.mask >> lane & 1) == 0) {
    diagnose(at, "lane " + std::to_string(lane) + " is not in its own mask");
    request.mask |= 1u << lane;
  }
  self.request = request;
  self.context.result = value;
  self.waits_at(at);
  block.warps_[self.rank / WARP].at_collective |= 1u << lane;
  block.complete_collective(self.rank / WARP, request.mask);
  return block.switch_from(self);
}

Value warp_collective(Request request, Value value, Site at) {
  return Block::collective(request, value, at);
}

int diagnose_width(int width, Site at) {
  diagnose(at,
           "the width of a shuffle is a power of two up to 32, not " + std::to_string(width));
  return WARP;
}

}  // namespace cudaemu
