// expected: right  shape: a template parameter that is an enum says what is done
enum class Operation { SUM, MAX };

template <typename T, Operation what>
__device__ T combine(T a, T b)
{
    return what == Operation::SUM ? a + b : (a > b ? a : b);
}

template <typename T, Operation what>
__global__ void reduce(const T *in, T *out, int n)
{
    extern __shared__ char raw[];
    T *cell = reinterpret_cast<T *>(raw);
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    cell[threadIdx.x] = k < n ? in[k] : T(0);
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cell[threadIdx.x] = combine<T, what>(cell[threadIdx.x], cell[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = cell[0];
}

template <typename T, Operation what>
void run(const T *in, T *out, int n)
{
    reduce<T, what><<<(n + 127) / 128, 128, 128 * sizeof(T)>>>(in, out, n);
}
