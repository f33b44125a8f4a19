// AVX-512 with VNNI: one instruction multiplies and adds 64 codes.
#include <immintrin.h>

#include "maple.h"

namespace maple {
namespace {

struct Codes {
    __m512i bytes;
};

struct Sums {
    __m512i lanes;
};

using Part = Sums;

constexpr int kRegister = 64;
constexpr int kSums = 8; // of 32 registers of 16 floats
constexpr int kPartColumns = 1 << 30;
constexpr int kHalves = 2;
constexpr int kPlanes = 8;

inline Codes read(const uint8_t *from) { return {_mm512_loadu_si512(from)}; }

// Shifts move whole 16-bit halves; the masks take away what crossed from one byte into the other.
inline Codes masked(Codes codes, int shift, char mask) {
    return {_mm512_and_si512(shift ? _mm512_srli_epi16(codes.bytes, shift) : codes.bytes, _mm512_set1_epi8(mask))};
}

template <int N> inline Codes field(Codes codes) { return masked(codes, 2 * N, 3); }
template <int N> inline Codes fourfold(Codes codes) { return masked(codes, 2 * N - 2, 12); }
template <int N> inline Codes nibble(Codes codes) { return masked(codes, 4 * N, 15); }

inline void dot(Part &part, Codes codes, int32_t digits) {
    part.lanes = _mm512_dpbusd_epi32(part.lanes, codes.bytes, _mm512_set1_epi32(digits));
}

inline void add(Sums &sums, Part part) { sums.lanes = _mm512_add_epi32(sums.lanes, part.lanes); }

} // namespace
} // namespace maple

#include "codes.h"

namespace maple {
namespace {

inline Ints ints(Sums sums) { return {{(Ints::Part)sums.lanes}}; }

} // namespace

const Kernels *avx512_kernels() {
    static const Kernels kernels = table("avx512");
    return &kernels;
}

} // namespace maple
