// NEON with the dot product instructions of ARMv8.2.
#include <arm_neon.h>

#include "maple.h"

namespace maple {
namespace {

struct Codes {
    int8x16_t quarter[4];
};

struct Sums {
    int32x4_t quarter[4];
};

using Part = Sums;

constexpr int kRegister = 16;
constexpr int kSums = 4; // four registers each, of 32
constexpr int kPartColumns = 512; // what a pass over one half reads stays in the first-level cache for the other
constexpr int kHalves = 1;
constexpr int kPlanes = 4;

inline Codes read(const uint8_t *from) {
    Codes codes;
    for (int i = 0; i < 4; i++) codes.quarter[i] = vreinterpretq_s8_u8(vld1q_u8(from + 16 * i));
    return codes;
}

template <int Shift> inline Codes masked(Codes codes, uint8_t mask) {
    for (int8x16_t &quarter : codes.quarter) {
        uint8x16_t bytes = vreinterpretq_u8_s8(quarter);
        if constexpr (Shift > 0) bytes = vshrq_n_u8(bytes, Shift);
        quarter = vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(mask)));
    }
    return codes;
}

template <int N> inline Codes field(Codes codes) { return masked<2 * N>(codes, 3); }
template <int N> inline Codes fourfold(Codes codes) { return masked<2 * N - 2>(codes, 12); }
template <int N> inline Codes nibble(Codes codes) { return masked<4 * N>(codes, 15); }

inline void dot(Part &part, Codes codes, int32_t digits) {
    const int8x16_t spread = vreinterpretq_s8_s32(vdupq_n_s32(digits));
    for (int i = 0; i < 4; i++) part.quarter[i] = vdotq_s32(part.quarter[i], codes.quarter[i], spread);
}

inline void add(Sums &sums, const Part &part) {
    for (int i = 0; i < 4; i++) sums.quarter[i] = vaddq_s32(sums.quarter[i], part.quarter[i]);
}

} // namespace
} // namespace maple

#include "codes.h"

namespace maple {
namespace {

inline Ints ints(const Sums &sums) {
    Ints whole;
    for (int i = 0; i < 4; i++) whole.part[i] = (Ints::Part)sums.quarter[i];
    return whole;
}

} // namespace

const Kernels *neon_kernels() {
    static const Kernels kernels = table("neon");
    return &kernels;
}

} // namespace maple
