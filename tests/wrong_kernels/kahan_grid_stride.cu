/*+++
title      = "Compensated grid-stride sum"
change     = "Each thread carries what its additions lose and gives it back with the next element (Kahan)."
expect     = "Four additions an element instead of one, hidden behind the loads."
scope      = "grid"
grid       = "fixed"
fixed_grid = 120
walk       = "grid_stride"
finish     = "relaunch_one_block"
block      = 256
blocks     = [64, 128, 256, 512, 1024]
dtypes     = ["float32", "float64"]
ops        = ["sum"]
techniques = ["grid_stride", "multi_add"]
+++*/
// Fault: once the running sum is infinite, the compensation is infinity minus infinity, so NaN, and the
// next element of the same thread makes the sum NaN. An input with one infinity must give infinity; it
// gives NaN wherever its thread has a further element, so with more elements than threads.
template <class T>
struct Kahan {
    T sum = T(0), lost = T(0);
    __device__ void add(T x)
    {
        const T y = x - lost;
        const T t = sum + y;
        lost = (t - sum) - y;
        sum = t;
    }
};

extern "C" __global__ void kahan_grid_stride(const In *in, Out *out, size_t n)
{
    __shared__ Acc cells[BLOCK];
    const unsigned tid = threadIdx.x;
    const size_t step = (size_t)gridDim.x * BLOCK;

    Kahan<Acc> total;
    for (size_t k = (size_t)blockIdx.x * BLOCK + tid; k < n; k += step)
        total.add(Op::lift(in[k], k));
    cells[tid] = total.sum;
    __syncthreads();

    for (unsigned s = BLOCK / 2; s > 0; s >>= 1) {
        if (tid < s)
            cells[tid] += cells[tid + s];
        __syncthreads();
    }
    if (tid == 0)
        out[blockIdx.x] = Op::finish(cells[0]);
}
