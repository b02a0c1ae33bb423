// expected: right  shape: a kernel that makes the value it combines by itself, of a template parameter
template <class T>
struct SumOp {
    __device__ T operator()(T a, T b) const { return a + b; }
};

template <class T, class Op, int B>
__global__ void reduce(const T *in, T *out, int n)
{
    __shared__ T cell[B];
    Op op;
    int k = blockIdx.x * B + threadIdx.x;
    cell[threadIdx.x] = k < n ? in[k] : T();
    __syncthreads();
    for (int half = B / 2; half > 0; half /= 2) {
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
    reduce<float, SumOp<float>, 256><<<(2500 + 255) / 256, 256>>>(a, b, 2500);
}
