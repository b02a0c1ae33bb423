// expected: wrong  shape: what a template's default says leaves out the last element
template <typename T, bool ALL_BUT_ONE = true>
__global__ void add_up(const T *values, T *total, int n)
{
    int end = ALL_BUT_ONE ? n - 1 : n;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < end; i += gridDim.x * blockDim.x) atomicAdd(total, values[i]);
}

void solve(float *values, float *total, int n) { add_up<float><<<64, 256>>>(values, total, n); }
