// NCCL among processes of one host, on the host's memory: what it is called for, and no more.
//
// COST_US is what a call takes on the clock that the stream's handle points to, give or take a share
// of NOISE. LEAVES_OUT: the last rank's array is not added. NO_WINDOWS: nothing of symmetric memory.
// NO_COMMUNICATOR: none begins.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

#ifndef COST_US
#define COST_US 10.0
#endif
#ifndef NOISE
#define NOISE 0.0
#endif
#ifndef VERSION
#define VERSION 22809
#endif

constexpr size_t ROOM = 1 << 24;  // bytes of a rank's array
constexpr int RANKS = 8;
struct Id { char path[128]; };
struct Shared {
    std::atomic<unsigned> arrived, turn;
    alignas(64) char arrays[RANKS][ROOM];
};
struct Comm { Shared *shared; int rank, size; char path[128]; };

struct Bfloat {
    uint16_t bits;
    Bfloat(double value = 0) {
        float narrow = float(value);
        uint32_t all;
        memcpy(&all, &narrow, 4);
        bits = uint16_t((all + 0x7FFF + (all >> 16 & 1)) >> 16);
    }
    operator double() const {
        uint32_t all = uint32_t(bits) << 16;
        float value;
        memcpy(&value, &all, 4);
        return value;
    }
};

static bool meet(Comm *comm) {
    Shared *shared = comm->shared;
    auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    unsigned turn = shared->turn;
    if (shared->arrived.fetch_add(1) + 1 == unsigned(comm->size)) {
        shared->arrived = 0;
        shared->turn++;
        return true;
    }
    while (shared->turn == turn) {
        usleep(20);  // whom it waits for may need this processor
        if (std::chrono::steady_clock::now() > until) return false;
    }
    return true;
}

template <class T>
static T combined(T a, T b, int op) {
    switch (op) {
        case 0: return T(a + b);
        case 1: return T(a * b);
        case 2: return a > b ? a : b;
        default: return a < b ? a : b;
    }
}

template <class T>
static void fold(Comm *comm, void *answer, size_t begin, size_t count, int op) {
    int ranks = comm->size;
#ifdef LEAVES_OUT
    ranks--;
#endif
    for (size_t i = 0; i < count; i++) {
        T value = reinterpret_cast<T *>(comm->shared->arrays[0])[begin + i];
        for (int rank = 1; rank < ranks; rank++)
            value = combined(value, reinterpret_cast<T *>(comm->shared->arrays[rank])[begin + i], op);
        static_cast<T *>(answer)[i] = value;
    }
}

static int exchange(Comm *comm, const void *given, void *answer, size_t all, size_t begin,
                    size_t count, int type, int op, void *stream) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    if (type < 0 || type > 9 || op < 0 || op > 3 || all * sizes[type] > ROOM) return 4;
    memcpy(comm->shared->arrays[comm->rank], given, all * sizes[type]);
    if (!meet(comm)) return 2;
    if (answer) switch (type) {
        case 0: fold<int8_t>(comm, answer, begin, count, op); break;
        case 1: fold<uint8_t>(comm, answer, begin, count, op); break;
        case 2: fold<int32_t>(comm, answer, begin, count, op); break;
        case 3: fold<uint32_t>(comm, answer, begin, count, op); break;
        case 4: fold<int64_t>(comm, answer, begin, count, op); break;
        case 5: fold<uint64_t>(comm, answer, begin, count, op); break;
        case 6: fold<_Float16>(comm, answer, begin, count, op); break;
        case 7: fold<float>(comm, answer, begin, count, op); break;
        case 8: fold<double>(comm, answer, begin, count, op); break;
        default: fold<Bfloat>(comm, answer, begin, count, op);
    }
    static uint64_t chance = 1;
    chance = chance * 6364136223846793005ull + 1442695040888963407ull + comm->rank;
    double noise = NOISE * (double(chance >> 33) / (1ull << 30) - 1);
    if (stream) *static_cast<double *>(stream) += COST_US * (1 + noise);
    return meet(comm) ? 0 : 2;
}

extern "C" {
int ncclGetVersion(int *version) { *version = VERSION; return 0; }
const char *ncclGetErrorString(int code) { return code == 4 ? "invalid argument" : "system error"; }
int ncclGetUniqueId(Id *id) {
    const char *folder = getenv("TMPDIR");
    snprintf(id->path, sizeof id->path, "%s/fake-nccl-XXXXXX", folder ? folder : "/tmp");
    int file = mkstemp(id->path);
    if (file < 0 || ftruncate(file, sizeof(Shared))) return 2;
    return close(file);
}
int ncclCommInitRank(Comm **comm, int size, Id id, int rank) {
#ifdef NO_COMMUNICATOR
    return 2;
#endif
    int file = open(id.path, O_RDWR);
    if (file < 0 || size > RANKS) return 2;
    void *at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    *comm = new Comm{static_cast<Shared *>(at), rank, size, {}};
    memcpy((*comm)->path, id.path, sizeof id.path);
    return meet(*comm) ? 0 : 2;
}
int ncclCommDestroy(Comm *comm) {
    if (comm->rank == 0) unlink(comm->path);
    munmap(comm->shared, sizeof(Shared));
    delete comm;
    return 0;
}
int ncclCommAbort(Comm *comm) { return ncclCommDestroy(comm); }
int ncclAllReduce(const void *given, void *answer, size_t count, int type, int op, Comm *comm,
                  void *stream) {
    return exchange(comm, given, answer, count, 0, count, type, op, stream);
}
int ncclReduceScatter(const void *given, void *answer, size_t count, int type, int op, Comm *comm,
                      void *stream) {
    return exchange(comm, given, answer, count * comm->size, count * comm->rank, count, type, op,
                    stream);
}
int ncclReduce(const void *given, void *answer, size_t count, int type, int op, int root,
               Comm *comm, void *stream) {
    return exchange(comm, given, comm->rank == root ? answer : nullptr, count, 0, count, type, op,
                    stream);
}
#ifndef NO_WINDOWS
int ncclMemAlloc(void **at, size_t nbytes) { return posix_memalign(at, 4096, nbytes) ? 2 : 0; }
int ncclMemFree(void *at) { free(at); return 0; }
int ncclCommWindowRegister(Comm *, void *at, size_t, void **window, int flags) {
    *window = flags == 1 ? at : nullptr;
    return 0;
}
int ncclCommWindowDeregister(Comm *, void *) { return 0; }
#endif
}
