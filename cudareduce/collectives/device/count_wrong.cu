// Counts the wrong elements of a result: found[0] is their number, found[1] the number of elements from the first
// wrong one to the end. Both must be 0 before. The result of every timed call is checked so, on the GPU.
extern "C" __global__ void __launch_bounds__(512) count_wrong(const In *got, const In *right, size_t n, size_t *found)
{
    const size_t step = (size_t)gridDim.x * 512;
    size_t wrong = 0, from = 0;
    for (size_t i = blockIdx.x * 512 + threadIdx.x; i < n; i += step)
        if (!(Op::lift(got[i], i) == Op::lift(right[i], i))) { // NaN is wrong, too
            wrong++;
            from = max(from, n - i);
        }
    if (wrong > 0) {
        Shared<size_t>(found[0]).fetch_add(wrong, cuda::std::memory_order_relaxed);
        Shared<size_t>(found[1]).fetch_max(from, cuda::std::memory_order_relaxed);
    }
}
