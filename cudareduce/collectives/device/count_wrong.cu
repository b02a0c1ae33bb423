// Compares a result with the expected one, after every timed call. counts[0] receives the number of wrong elements,
// counts[1] the number of elements from the first wrong one to the end. Both must be 0 before.
extern "C" __global__ void __launch_bounds__(512) count_wrong(const In *got, const In *right, size_t n, size_t *counts)
{
    const size_t step = (size_t)gridDim.x * 512;
    size_t wrong = 0, from = 0;
    for (size_t i = blockIdx.x * 512 + threadIdx.x; i < n; i += step)
        if (!(Op::lift(got[i], i) == Op::lift(right[i], i))) { // NaN is wrong, too
            wrong++;
            from = max(from, n - i);
        }
    if (wrong > 0) {
        Shared<size_t>(counts[0]).fetch_add(wrong, cuda::std::memory_order_relaxed);
        Shared<size_t>(counts[1]).fetch_max(from, cuda::std::memory_order_relaxed);
    }
}
