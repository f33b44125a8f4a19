// The threads of one call: OpenMP's, or the caller's alone where there is no OpenMP.
#pragma once

#include <atomic>
#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace maple {

class Team {
  public:
    Team(int index, int size, std::atomic<int> *counters) : index(index), size(size), counters_(counters) {}

    const int index, size;

    // Wait until all have come here.
    void meet() {
#ifdef _OPENMP
        if (size > 1) {
#pragma omp barrier
        }
#endif
    }

    // The part of 0 .. count that is this thread's.
    int64_t begin(int64_t count) const { return count * index / size; }
    int64_t end(int64_t count) const { return count * (index + 1) / size; }

    // The next number that no thread has taken yet; all threads call share() first, between two meetings.
    int next() { return counters_[round_ & 1].fetch_add(1, std::memory_order_relaxed); }

    // Begin a new count from 0. The counter of the round before last is nobody's any more.
    void share() {
        round_++;
        if (index == 0) counters_[(round_ + 1) & 1].store(0, std::memory_order_relaxed);
    }

  private:
    std::atomic<int> *counters_;
    int round_ = 0;
};

// Run work(team) in `size` threads.
template <class Work> void run_team(int size, Work work) {
    std::atomic<int> counters[2] = {0, 0};
#ifdef _OPENMP
    if (size > 1) {
#pragma omp parallel num_threads(size)
        {
            Team team(omp_get_thread_num(), omp_get_num_threads(), counters);
            work(team);
        }
        return;
    }
#endif
    Team team(0, 1, counters);
    work(team);
}

} // namespace maple
