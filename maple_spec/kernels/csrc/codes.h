// The kernels over packed codes, written once over the operations that an instruction set's file defines before including this:
//
//   Codes         64 bytes of codes
//   Sums          16 sums in 32 bits, one for each four bytes
//   Part          such sums of a few products, in as many bits as these need
//   read(from)    64 bytes
//   field<N>(codes)     bits 2N and 2N + 1 of each byte: its code N
//   fourfold<N>(codes)  the same, N odd, left where it stands above code N - 1: four times the code
//   nibble<N>(codes)    bits 4N to 4N + 3 of each byte
//   dot(part, codes, digits)   part[i] += codes[4i + b] * digits byte b; the codes that a part meets at a place come to 128 at most
//   add(sums, part)     sums[i] += part[i]
//   ints(sums)          as a vector
//   kPartColumns        after so many columns of ternary codes a part must be added
//   kHalves, kPlanes    how much of a unit, and how many planes of a tile, the registers hold sums for at once
#pragma once

#include "lanes.h"

namespace maple {
namespace {

constexpr int kAhead = 2048; // bytes: what is asked for so early is there in time; the processor's own guess is a fifth slower
constexpr int kPartBlocks = 8; // a nibble comes to 15, so that a part may meet eight of them

inline int32_t word_at(const int8_t *digits) {
    int32_t word;
    std::memcpy(&word, digits, sizeof word);
    return word;
}

// The dots of one field of a unit with all planes of one vector.
template <int Planes> inline void row_step(Part (&parts)[Planes], Codes codes, const int8_t *digits, int columns) {
#pragma GCC unroll 2
    for (int plane = 0; plane < Planes; plane++) dot(parts[plane], codes, word_at(digits + plane * columns));
}

template <int Planes>
void ternary_rows_of(const uint8_t *codes, const float *row_scale, int groups, int columns, const int8_t *digits, float scale,
                     int32_t sum, float *y) {
    for (int group = 0; group < groups; group++, codes += columns * (kGroupRows / 4)) {
        Sums ones[2][Planes] = {}, fours[2][Planes] = {};
        for (int begin = 0; begin < columns; begin += kPartColumns) {
            const int end = columns - begin < kPartColumns ? columns : begin + kPartColumns;
            for (int first = 0; first < 2; first += kHalves) {
                Part one[kHalves][Planes] = {}, four[kHalves][Planes] = {};
                for (int k = begin; k < end; k += kUnitColumns) {
#pragma GCC unroll 2
                    for (int half = 0; half < kHalves; half++) {
                        const uint8_t *at = codes + k * (kGroupRows / 4) + (first + half) * 64;
                        __builtin_prefetch(at + kAhead);
                        const Codes unit = read(at);
                        const int8_t *words = digits + k;
                        row_step<Planes>(one[half], field<0>(unit), words, columns);
                        row_step<Planes>(four[half], fourfold<1>(unit), words + 4, columns);
                        row_step<Planes>(one[half], field<2>(unit), words + 8, columns);
                        row_step<Planes>(four[half], fourfold<3>(unit), words + 12, columns);
                    }
                }
                for (int half = 0; half < kHalves; half++)
                    for (int plane = 0; plane < Planes; plane++) {
                        add(ones[first + half][plane], one[half][plane]);
                        add(fours[first + half][plane], four[half][plane]);
                    }
            }
        }
        int32_t sums[Planes * kGroupRows];
        for (int half = 0; half < 2; half++)
            for (int plane = 0; plane < Planes; plane++)
                store(sums + plane * kGroupRows + half * kLanes, ints(ones[half][plane]) + (ints(fours[half][plane]) >> 2));
        finish(sums, Planes, scale, sum, row_scale + group * kGroupRows, y + group * kGroupRows);
    }
}

void ternary_rows(const uint8_t *codes, const float *row_scale, int groups, int columns, int planes, const int8_t *digits,
                  float scale, int32_t sum, float *y) {
    if (planes == 2) ternary_rows_of<2>(codes, row_scale, groups, columns, digits, scale, sum, y);
    else ternary_rows_of<1>(codes, row_scale, groups, columns, digits, scale, sum, y);
}

// The dots of one field of a unit with Count planes, from First on, of a tile of Width.
template <int N, int Width, int First, int Count>
inline void tile_step(Part (&parts)[kHalves][Count], const Codes (&units)[kHalves], const int32_t *tile) {
#pragma GCC unroll 2
    for (int half = 0; half < kHalves; half++) {
        const Codes codes = field<N>(units[half]);
#pragma GCC unroll 8
        for (int i = 0; i < Count; i++) dot(parts[half][i], codes, tile[N * Width + First + i]);
    }
}

template <int Width, int First>
inline void tile_planes(const uint8_t *codes, int begin, int end, const int32_t *tile, Sums (&sums)[2][Width]) {
    if constexpr (First < Width) {
        constexpr int Count = Width - First < kPlanes ? Width - First : kPlanes;
        for (int first = 0; first < 2; first += kHalves) {
            Part parts[kHalves][Count] = {};
            for (int k = begin; k < end; k += kUnitColumns) {
                Codes units[kHalves];
                for (int half = 0; half < kHalves; half++) units[half] = read(codes + k * (kGroupRows / 4) + (first + half) * 64);
                const int32_t *at = tile + k / 4 * Width;
                tile_step<0, Width, First, Count>(parts, units, at);
                tile_step<1, Width, First, Count>(parts, units, at);
                tile_step<2, Width, First, Count>(parts, units, at);
                tile_step<3, Width, First, Count>(parts, units, at);
            }
            for (int half = 0; half < kHalves; half++)
                for (int i = 0; i < Count; i++) add(sums[first + half][First + i], parts[half][i]);
        }
        tile_planes<Width, First + Count>(codes, begin, end, tile, sums);
    }
}

template <int Width> void ternary_tile_of(const uint8_t *codes, int columns, const int32_t *tile, int32_t *sums) {
    Sums whole[2][Width] = {};
    for (int begin = 0; begin < columns; begin += kPartColumns)
        tile_planes<Width, 0>(codes, begin, columns - begin < kPartColumns ? columns : begin + kPartColumns, tile, whole);
    for (int i = 0; i < Width; i++)
        for (int half = 0; half < 2; half++) store(sums + i * kGroupRows + half * kLanes, ints(whole[half][i]));
}

void ternary_tile(const uint8_t *codes, int columns, int width, const int32_t *tile, int32_t *sums) {
    switch (width) {
    case 1: return ternary_tile_of<1>(codes, columns, tile, sums);
    case 2: return ternary_tile_of<2>(codes, columns, tile, sums);
    case 3: return ternary_tile_of<3>(codes, columns, tile, sums);
    case 4: return ternary_tile_of<4>(codes, columns, tile, sums);
    case 5: return ternary_tile_of<5>(codes, columns, tile, sums);
    case 6: return ternary_tile_of<6>(codes, columns, tile, sums);
    case 7: return ternary_tile_of<7>(codes, columns, tile, sums);
    default: return ternary_tile_of<8>(codes, columns, tile, sums);
    }
}

template <int Planes, int Bits>
void affine_rows_of(const uint8_t *rows, int groups, int columns, int group_size, const int8_t *digits, const int32_t *sums,
                    float x_scale, float *y) {
    for (int group = 0; group < groups; group++) {
        Floats weighted = {}, shift = {};
        for (int start = 0, index = 0; start < columns; start += group_size, index++) {
            Sums low_sums[Planes] = {}, high_sums[Planes] = {};
            // 4 bits: the low nibbles of a block are four columns of the first half of the group, the high ones of the second.
            // 8 bits: a block is four columns, and a code is its low nibble plus 16 times its high one.
            const int blocks = Bits * group_size / 32;
            for (int begin = 0; begin < blocks; begin += kPartBlocks) {
                const int end = blocks - begin < kPartBlocks ? blocks : begin + kPartBlocks;
                Part low[Planes] = {}, high[Planes] = {};
                for (int j = begin; j < end; j++, rows += 64) {
                    __builtin_prefetch(rows + kAhead);
                    const Codes codes = read(rows), a = nibble<0>(codes), b = nibble<1>(codes);
                    const int8_t *at = digits + start + 4 * j;
#pragma GCC unroll 2
                    for (int plane = 0; plane < Planes; plane++, at += columns) {
                        dot(low[plane], a, word_at(at));
                        dot(high[plane], b, word_at(Bits == 4 ? at + group_size / 2 : at));
                    }
                }
                for (int plane = 0; plane < Planes; plane++) {
                    add(low_sums[plane], low[plane]);
                    add(high_sums[plane], high[plane]);
                }
            }
            Ints total = {};
            for (int plane = 0; plane < Planes; plane++)
                total = total * 256 + ints(low_sums[plane]) + ints(high_sums[plane]) * (Bits == 4 ? 1 : 16);
            const uint16_t *scales = (const uint16_t *)rows;
            weighted += to_floats(total) * from_bfloat16(scales);
            shift += from_bfloat16(scales + kHeadRows) * (float)sums[index];
            rows += 2 * kHeadRows * sizeof(uint16_t);
        }
        store(y + group * kHeadRows, (weighted + shift) * x_scale);
    }
}

void affine_rows(const uint8_t *rows, int groups, int columns, int group_size, int bits, int planes, const int8_t *digits,
                 const int32_t *sums, float x_scale, float *y) {
    if (bits == 4 && planes == 2) affine_rows_of<2, 4>(rows, groups, columns, group_size, digits, sums, x_scale, y);
    else if (bits == 4) affine_rows_of<1, 4>(rows, groups, columns, group_size, digits, sums, x_scale, y);
    else if (planes == 2) affine_rows_of<2, 8>(rows, groups, columns, group_size, digits, sums, x_scale, y);
    else affine_rows_of<1, 8>(rows, groups, columns, group_size, digits, sums, x_scale, y);
}

constexpr Kernels table(const char *name) {
    return {name, quantise, quantise_plain, ternary_rows, ternary_tile, finish, affine_rows, bfloat16_rows, norm, norm_and_turn, remember,
            attend, swiglu, add_scaled, read_all};
}

} // namespace
} // namespace maple
