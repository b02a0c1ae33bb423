// NCCL's all-reduce of float32 as nccl-tests measures it, without either tool: `nccl_loop N...` prints what
// a call takes in us for each N, launched by the host, by graphs, and held back until all are launched, on two GPUs
// by a process each.
//
// As all_reduce_perf does with -b N -e N: 5 calls to warm up, 20 calls back to back on the same array, the
// clock of the host, from a common start until all have ended, the mean over calls and ranks; and with -G 10:
// these 20 calls are a graph, which is launched 10 times. Short calls are over before the host has the next one
// ready, so the first tells what the host takes; and between kernels of a graph there is less than between those of
// a stream. So at last the stream is held until 40 calls are in it: what they take there on the GPU, from the end
// of a call before, by events.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nccl.h>

const int WARM = 5, CALLS = 20, LAUNCHES = 10, HELD = 40;

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
    // What `some`, done so many times, takes from a common start, the mean of both ranks.
    auto timed = [&](int times, auto some) {
        checked(cudaStreamSynchronize(stream));
        exchanged(peer, 0);
        const auto begun = std::chrono::steady_clock::now();
        for (int k = 0; k < times; ++k)
            some();
        checked(cudaStreamSynchronize(stream));
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begun;
        const double us = spent.count() / times;
        return (us + exchanged(peer, us)) / 2;
    };
    for (int word = 1; word < count; ++word) {
        const size_t n = atoll(words[word]);
        auto call = [&] { checked(ncclAllReduce(in, out, n, ncclFloat, ncclSum, members, stream)); };
        timed(WARM, call);
        const double by_host = timed(CALLS, call);
        cudaGraph_t graph;
        cudaGraphExec_t ready;
        checked(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int k = 0; k < CALLS; ++k)
            call();
        checked(cudaStreamEndCapture(stream, &graph));
        checked(cudaGraphInstantiate(&ready, graph, 0));
        auto launch = [&] { checked(cudaGraphLaunch(ready, stream)); };
        timed(1, launch);
        const double by_graph = timed(LAUNCHES, launch) / CALLS;
        std::atomic<bool> open{false};
        auto hold = [](void *gate) {
            while (!*static_cast<std::atomic<bool> *>(gate)) {}
        };
        cudaEvent_t begun, ended;
        checked(cudaEventCreate(&begun));
        checked(cudaEventCreate(&ended));
        checked(cudaLaunchHostFunc(stream, hold, &open));
        call(); // which waits for the other rank, so that both begin together
        checked(cudaEventRecord(begun, stream));
        for (int k = 0; k < HELD; ++k)
            call();
        checked(cudaEventRecord(ended, stream));
        exchanged(peer, 0);
        open = true;
        checked(cudaEventSynchronize(ended));
        float ms = 0;
        checked(cudaEventElapsedTime(&ms, begun, ended));
        const double own_us = ms * 1e3 / HELD, held = std::max(own_us, exchanged(peer, own_us));
        checked(cudaEventDestroy(begun));
        checked(cudaEventDestroy(ended));
        checked(cudaGraphExecDestroy(ready));
        checked(cudaGraphDestroy(graph));
        if (rank == 0)
            printf("%zu %.4f %.4f %.4f\n", n, by_host, by_graph, held);
    }
    checked(ncclCommDestroy(members));
    int ended = 0;
    if (child)
        waitpid(child, &ended, 0);
    return ended ? 1 : 0;
}
