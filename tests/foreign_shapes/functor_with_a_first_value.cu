// expected: right  shape: a struct that combines, and a value of the element's type to begin with
template <class T>
struct Sum {
    __device__ T operator()(T a, T b) const { return a + b; }
};

template <class T, class Op>
__global__ void reduce(const T *in, T *out, int n, T init, Op op)
{
    __shared__ T cell[256];
    T v = init;
    for (int k = blockIdx.x * 256 + threadIdx.x; k < n; k += 256 * gridDim.x)
        v = op(v, in[k]);
    cell[threadIdx.x] = v;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            cell[threadIdx.x] = op(cell[threadIdx.x], cell[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = cell[0];
}

int main()
{
    float *a, *b;
    reduce<<<64, 256>>>(a, b, 10000, 0.0f, Sum<float>());
}
