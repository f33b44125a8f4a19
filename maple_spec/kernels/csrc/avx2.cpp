// AVX2: products of codes and digits are added in 16 bits for as long as these hold them, then in 32.
#include <immintrin.h>

#include "maple.h"

namespace maple {
namespace {

struct Codes {
    __m256i half[2];
};

struct Sums {
    __m256i half[2];
};

// Two sums in 16 bits for each in 32: two products of a code and a digit each, so that codes of 128 in all come to 32,768 at most.
struct Part {
    __m256i half[2];
};

constexpr int kRegister = 32;
constexpr int kSums = 4; // two registers each, of 16
constexpr int kPartColumns = 128; // fourfold codes come to 8, two a unit
constexpr int kHalves = 1;
constexpr int kPlanes = 4;

inline Codes read(const uint8_t *from) {
    return {{_mm256_loadu_si256((const __m256i *)from), _mm256_loadu_si256((const __m256i *)(from + 32))}};
}

// Shifts move whole 16-bit halves; the masks take away what crossed from one byte into the other.
inline Codes masked(Codes codes, int shift, char mask) {
    const __m256i wanted = _mm256_set1_epi8(mask);
    return {{_mm256_and_si256(_mm256_srli_epi16(codes.half[0], shift), wanted),
             _mm256_and_si256(_mm256_srli_epi16(codes.half[1], shift), wanted)}};
}

template <int N> inline Codes field(Codes codes) { return masked(codes, 2 * N, 3); }
template <int N> inline Codes fourfold(Codes codes) { return masked(codes, 2 * N - 2, 12); }
template <int N> inline Codes nibble(Codes codes) { return masked(codes, 4 * N, 15); }

inline void dot(Part &part, Codes codes, int32_t digits) {
    const __m256i spread = _mm256_set1_epi32(digits);
    part.half[0] = _mm256_add_epi16(part.half[0], _mm256_maddubs_epi16(codes.half[0], spread));
    part.half[1] = _mm256_add_epi16(part.half[1], _mm256_maddubs_epi16(codes.half[1], spread));
    asm("" : "+x"(part.half[0]), "+x"(part.half[1])); // in this order: sums over several fields at once do not fit the registers
}

inline void add(Sums &sums, const Part &part) {
    const __m256i ones = _mm256_set1_epi16(1);
    sums.half[0] = _mm256_add_epi32(sums.half[0], _mm256_madd_epi16(part.half[0], ones));
    sums.half[1] = _mm256_add_epi32(sums.half[1], _mm256_madd_epi16(part.half[1], ones));
}

} // namespace
} // namespace maple

#include "codes.h"

namespace maple {
namespace {

inline Ints ints(const Sums &sums) { return {{(Ints::Part)sums.half[0], (Ints::Part)sums.half[1]}}; }

} // namespace

const Kernels *avx2_kernels() {
    static const Kernels kernels = table("avx2");
    return &kernels;
}

} // namespace maple
