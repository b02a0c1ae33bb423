// Reports a deadlock: no thread of a block can continue.
#include <string>

#include "block.h"
#include "diagnostics.h"

namespace cudaemu {

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

// Consecutive threads that wait at the same call are listed as one range.
void Block::report_deadlock() {
  outcome_ = Outcome::Abandoned;
  const auto state_of = [this](unsigned rank) -> std::string {
    const Warp &warp = warps_[rank / WARP];
    const unsigned bit = 1u << rank % WARP;
    const Fiber &fiber = fibers_[rank];
    if (warp.exited & bit) return "exited";
    if (warp.at_barrier & bit) return "wait at __syncthreads, " + describe_site(fiber.site());
    char mask[32];
    __builtin_snprintf(mask, sizeof mask, " with mask 0x%08x, ", fiber.request.mask);
    const std::string name = name_of(fiber.request.what);
    return "wait at " + name + mask + describe_site(fiber.site());
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

}  // namespace cudaemu
