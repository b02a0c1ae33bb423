// NCCL's all-reduce of float32 as nccl-tests measures it, without either tool: `nccl_loop N...` prints what
// a call takes in us for each N, on two GPUs of this host by a process each.
//
// 5 calls to warm up; 20 calls back to back, each on the next piece of an array as long as the largest N;
// the clock of the host, from a common start until all have ended; the mean over calls and ranks.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nccl.h>

const int WARM = 5, CALLS = 20;

static void checked(cudaError_t code)
{
    if (code != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(code));
        exit(1);
    }
}

static void checked(ncclResult_t code)
{
    if (code != ncclSuccess) {
        fprintf(stderr, "%s\n", ncclGetErrorString(code));
        exit(1);
    }
}

// What the other rank says, told this.
template <typename T> static T exchanged(int peer, T own)
{
    T theirs;
    if (write(peer, &own, sizeof own) != sizeof own || read(peer, &theirs, sizeof theirs) != sizeof theirs)
        exit(1);
    return theirs;
}

int main(int count, char **words)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
        return 1;
    const pid_t child = fork(); // before CUDA begins
    const int rank = child ? 0 : 1, peer = ends[rank];
    close(ends[1 - rank]);
    checked(cudaSetDevice(rank));
    ncclUniqueId own, theirs;
    if (rank == 0)
        checked(ncclGetUniqueId(&own));
    theirs = exchanged(peer, own);
    ncclComm_t members;
    checked(ncclCommInitRank(&members, 2, rank ? theirs : own, rank));
    cudaStream_t stream;
    checked(cudaStreamCreate(&stream));
    size_t most = 0;
    for (int word = 1; word < count; ++word)
        most = std::max(most, static_cast<size_t>(atoll(words[word])));
    float *in, *out;
    checked(cudaMalloc(&in, most * sizeof(float)));
    checked(cudaMalloc(&out, most * sizeof(float)));
    checked(cudaMemset(in, 0, most * sizeof(float)));
    for (int word = 1; word < count; ++word) {
        const size_t n = atoll(words[word]), pieces = most / n;
        auto call = [&](int k) {
            const size_t from = n * (k % pieces);
            checked(ncclAllReduce(in + from, out + from, n, ncclFloat, ncclSum, members, stream));
        };
        for (int k = 0; k < WARM; ++k)
            call(k);
        checked(cudaStreamSynchronize(stream));
        exchanged(peer, 0);
        const auto begun = std::chrono::steady_clock::now();
        for (int k = 0; k < CALLS; ++k)
            call(k);
        checked(cudaStreamSynchronize(stream));
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begun;
        const double us = spent.count() / CALLS, other = exchanged(peer, us);
        if (rank == 0)
            printf("%zu %.4f\n", n, (us + other) / 2);
    }
    checked(ncclCommDestroy(members));
    int ended = 0;
    if (child)
        waitpid(child, &ended, 0);
    return ended ? 1 : 0;
}
