// What the lanes of a warp do together: shuffles, votes, reductions, __syncwarp.
#include <algorithm>

#include "diagnostics.h"
#include "hazards.h"

namespace cudaemu {
namespace {

// What a lane gets that asks for the value of a lane which takes no part: NaN, or -1.
constexpr Value POISON = {~0ull, ~0ull};

bool is_shuffle(Collective what) {
  return what >= Collective::ShuffleIndex && what <= Collective::ShuffleXor;
}

// The lane whose value `lane` receives. Lanes are grouped by `width`, and a shuffle that would
// leave the group gives the lane its own value back.
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

uint32_t reduce_lanes(Collective how, unsigned lanes, const Value *given) {
  uint32_t result = 0;
  bool first = true;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const unsigned lane = static_cast<unsigned>(__builtin_ctz(left));
    const uint32_t value = static_cast<uint32_t>(given[lane].low);
    if (how == Collective::Ballot) {
      result |= value << lane;
    } else {
      result = first ? value : combine(how, result, value);
    }
    first = false;
  }
  return result;
}

}  // namespace

// Done as soon as every lane of the mask is here; until then nothing happens. Lanes that have
// exited or that the block never had are not waited for.
void Block::complete_collective(unsigned warp_number, unsigned mask) {
  Warp &warp = warps_[warp_number];
  const Fiber *fibers = &fibers_[warp_number * WARP];
  const unsigned lanes = mask & warp.present & ~warp.exited;
  if (lanes == 0 || (warp.at_collective & lanes) != lanes) return;

  const Collective what = fibers[__builtin_ctz(lanes)].collective;
  for (unsigned left = lanes; left != 0; left &= left - 1) {
    const Fiber &fiber = fibers[__builtin_ctz(left)];
    if (fiber.mask != mask || fiber.collective != what) return;
  }

  if (is_shuffle(what)) {
    for (unsigned left = lanes; left != 0; left &= left - 1) {
      const unsigned lane = static_cast<unsigned>(__builtin_ctz(left));
      const Fiber &fiber = fibers[lane];
      const unsigned source = source_lane(what, lane, fiber.argument, fiber.width);
      const bool takes_part = source < WARP && (lanes >> source & 1) != 0;
      warp.received[lane] = takes_part ? warp.given[source] : POISON;
    }
  } else if (what == Collective::SyncWarp) {
    hazards::warp_synchronised(warp_number, lanes);
  } else {
    const uint32_t result = reduce_lanes(what, lanes, warp.given);
    for (unsigned left = lanes; left != 0; left &= left - 1) {
      warp.received[__builtin_ctz(left)] = {result, 0};
    }
  }
  warp.at_collective &= ~lanes;
  make_ready(warp_number, lanes);
}

Value Block::collective(Collective what, unsigned mask, Value value, int argument, int width,
                        Site at) {
  Fiber &self = current();
  const unsigned lane = self.rank % WARP;
  if ((mask >> lane & 1) == 0) {
    diagnose(at, "lane " + std::to_string(lane) + " is not in its own mask");
    mask |= 1u << lane;
  }
  const bool is_power_of_two = width > 0 && (width & (width - 1)) == 0;
  if (!is_power_of_two || width > static_cast<int>(WARP)) {
    diagnose(at, "the width of a shuffle is a power of two up to 32, not " + std::to_string(width));
    width = WARP;
  }
  self.collective = what;
  self.mask = mask;
  self.argument = argument;
  self.width = width;
  self.site = at;
  Warp &warp = warps_[self.rank / WARP];
  warp.given[lane] = value;
  warp.at_collective |= 1u << lane;
  complete_collective(self.rank / WARP, mask);
  switch_from(self);
  return warp.received[lane];
}

Value warp_collective(Collective what, unsigned mask, Value value, int argument, int width,
                      Site at) {
  return running_block->collective(what, mask, value, argument, width, at);
}

}  // namespace cudaemu
