// Plain C++: correct on every processor, and what the other instruction sets are measured against.
#include "maple.h"

namespace maple {
namespace {

struct Codes {
    uint8_t byte[64];
};

struct Sums {
    int32_t lane[kLanes];
};

using Part = Sums;

constexpr int kRegister = 16;
constexpr int kSums = 2;
constexpr int kPartColumns = 1 << 30;
constexpr int kHalves = 1;
constexpr int kPlanes = 1;

inline Codes read(const uint8_t *from) {
    Codes codes;
    __builtin_memcpy(codes.byte, from, sizeof codes.byte);
    return codes;
}

inline Codes masked(Codes codes, int shift, uint8_t mask) {
    for (uint8_t &byte : codes.byte) byte = (uint8_t)((byte >> shift) & mask);
    return codes;
}

template <int N> inline Codes field(Codes codes) { return masked(codes, 2 * N, 3); }
template <int N> inline Codes fourfold(Codes codes) { return masked(codes, 2 * N - 2, 12); }
template <int N> inline Codes nibble(Codes codes) { return masked(codes, 4 * N, 15); }

inline void dot(Part &part, const Codes &codes, int32_t digits) {
    int8_t digit[4];
    __builtin_memcpy(digit, &digits, sizeof digit);
    for (int i = 0; i < kLanes; i++)
        for (int b = 0; b < 4; b++) part.lane[i] += codes.byte[4 * i + b] * digit[b];
}

inline void add(Sums &sums, const Part &part) {
    for (int i = 0; i < kLanes; i++) sums.lane[i] += part.lane[i];
}

} // namespace
} // namespace maple

#include "codes.h"

namespace maple {
namespace {

inline Ints ints(const Sums &sums) { return load<Ints>(sums.lane); }

} // namespace

const Kernels *plain_kernels() {
    static const Kernels kernels = table("plain");
    return &kernels;
}

} // namespace maple
