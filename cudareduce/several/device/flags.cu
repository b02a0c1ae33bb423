// How long a flag travels: between the two ranks of a pair it goes there and back, `rounds` times, and numbers
// grow from `first` on. Of an odd number of ranks the last one has nobody.
template <bool ORDERED> __device__ void there_and_back(const Ranks &ranks, size_t flag, unsigned first, unsigned rounds)
{
    constexpr auto PUT = ORDERED ? cuda::std::memory_order_release : cuda::std::memory_order_relaxed;
    constexpr auto GET = ORDERED ? cuda::std::memory_order_acquire : cuda::std::memory_order_relaxed;
    const unsigned whom = ranks.me ^ 1;
    if (threadIdx.x > 0 || whom >= RANKS)
        return;
    Shared<unsigned> mine(*ranks.here<unsigned>(flag)), theirs(*ranks.at<unsigned>(whom, flag));
    for (unsigned number = first; number != first + rounds; number++) {
        if (ranks.me % 2 == 0)
            theirs.store(number, PUT);
        ranks.wait(whom, [=] { return (int)(mine.load(GET) - number) >= 0; });
        if (ranks.me % 2 == 1)
            theirs.store(number, PUT);
    }
}

// As a barrier has it: what was written before the flag is read behind it.
extern "C" __global__ void __launch_bounds__(32) flag_ordered(
    const __grid_constant__ Ranks ranks, size_t flag, size_t first, size_t rounds)
{
    there_and_back<true>(ranks, flag, first, rounds);
}

// As packets have it, which bring what there is to say themselves.
extern "C" __global__ void __launch_bounds__(32) flag_relaxed(
    const __grid_constant__ Ranks ranks, size_t flag, size_t first, size_t rounds)
{
    there_and_back<false>(ranks, flag, first, rounds);
}
