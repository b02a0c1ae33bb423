// expected: right  shape: the index of a row is a product by a function, which a macro stands for
#define TIMES(a, b) __mul24(a, b)

__global__ void products(float *C, float *A, float *B, int vectorN, int elementN)
{
    __shared__ float part[128];
    for (int row = blockIdx.x; row < vectorN; row += gridDim.x) {
        int begin = TIMES(elementN, row);
        float sum = 0;
        for (int k = begin + threadIdx.x; k < begin + elementN; k += blockDim.x)
            sum += A[k] * B[k];
        part[threadIdx.x] = sum;
        for (int half = blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half)
                part[threadIdx.x] += part[threadIdx.x + half];
        }
        if (threadIdx.x == 0)
            C[row] = part[0];
        __syncthreads();
    }
}

void launch(float *C, float *A, float *B, int rows, int n) { products<<<128, 128>>>(C, A, B, rows, n); }
