// A barrier that all GPUs leave at the same time, so that calls after it start together. Every rank also waits for
// the latency of a flag after its own store. No data is passed, so relaxed order is enough.
constexpr long long LATENCY = 1500; // SM clocks until a flag is visible: 0.755 us at 1.98 GHz, two H100, NVLink 4

extern "C" __global__ void __launch_bounds__(32) align(const __grid_constant__ Ranks ranks, size_t flags, size_t call)
{
    const unsigned number = call;
    if (threadIdx.x < RANKS) {
        const long long stored = clock64();
        Shared<unsigned>(ranks.at<unsigned>(threadIdx.x, flags)[ranks.me])
            .store(number, cuda::std::memory_order_relaxed);
        Shared<unsigned> theirs(ranks.here<unsigned>(flags)[threadIdx.x]);
        ranks.wait(threadIdx.x, [&] { return (int)(theirs.load(cuda::std::memory_order_relaxed) - number) >= 0; });
        while (clock64() - stored < LATENCY) {}
    }
}
