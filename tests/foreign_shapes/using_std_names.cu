// expected: right  shape: using declarations of names that only host code needs
#include <iostream>
#include <vector>
using std::cout;
using std::vector;

__global__ void add_all(const int *values, int *total, int count)
{
    int place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place < count) atomicAdd(total, values[place]);
}

int main()
{
    vector<int> host(1000, 1);
    cout << host.size() << "\n";
}
