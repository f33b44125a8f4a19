// The kernels over packed codes, written once over the operations that an instruction set's file defines before including this:
//
//   Codes         64 bytes of codes
//   Sums          16 sums, one for each four bytes
//   read(from)    64 bytes
//   field<N>(codes)     bits 2N and 2N + 1 of each byte: its code N
//   fourfold<N>(codes)  the same, N odd, left where it stands above code N - 1: four times the code
//   nibble<N>(codes)    bits 4N to 4N + 3 of each byte
//   dot(sums, codes, digits)   sums[i] += codes[4i + b] * digits byte b, for codes below 16
//   ints(sums)    as a vector
#pragma once

#include "lanes.h"

namespace maple {
namespace {

inline int32_t word_at(const int8_t *digits) {
    int32_t word;
    std::memcpy(&word, digits, sizeof word);
    return word;
}

template <int Planes>
void ternary_rows_of(const uint8_t *codes, const float *row_scale, int groups, int columns, const int8_t *digits, float scale,
                     int32_t sum, float *y) {
    for (int group = 0; group < groups; group++) {
        Sums ones[2][Planes] = {}, fours[2][Planes] = {};
        for (int k = 0; k < columns; k += kUnitColumns) {
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++, codes += 64) {
                const Codes unit = read(codes);
                const Codes a = field<0>(unit), b = fourfold<1>(unit), c = field<2>(unit), d = fourfold<3>(unit);
#pragma GCC unroll 2
                for (int plane = 0; plane < Planes; plane++) {
                    const int8_t *at = digits + plane * columns + k;
                    dot(ones[half][plane], a, word_at(at));
                    dot(fours[half][plane], b, word_at(at + 4));
                    dot(ones[half][plane], c, word_at(at + 8));
                    dot(fours[half][plane], d, word_at(at + 12));
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

template <int Width> inline void tile_step(Sums (&sums)[2][Width], Codes first, Codes second, const int32_t *tile) {
#pragma GCC unroll 8
    for (int i = 0; i < Width; i++) {
        dot(sums[0][i], first, tile[i]);
        dot(sums[1][i], second, tile[i]);
    }
}

template <int Width> void ternary_tile_of(const uint8_t *codes, int columns, const int32_t *tile, int32_t *sums) {
    Sums ones[2][Width] = {};
    for (int k = 0; k < columns; k += kUnitColumns, codes += 128) {
        const Codes a = read(codes), b = read(codes + 64);
        tile_step<Width>(ones, field<0>(a), field<0>(b), tile);
        tile_step<Width>(ones, field<1>(a), field<1>(b), tile + Width);
        tile_step<Width>(ones, field<2>(a), field<2>(b), tile + 2 * Width);
        tile_step<Width>(ones, field<3>(a), field<3>(b), tile + 3 * Width);
        tile += 4 * Width;
    }
    for (int i = 0; i < Width; i++)
        for (int half = 0; half < 2; half++) store(sums + i * kGroupRows + half * kLanes, ints(ones[half][i]));
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
            Sums low_part[Planes] = {}, high_part[Planes] = {};
            // 4 bits: the low nibbles of a block are four columns of the first half of the group, the high ones of the second.
            // 8 bits: a block is four columns, and a code is its low nibble plus 16 times its high one.
            const int blocks = Bits * group_size / 32;
            for (int j = 0; j < blocks; j++, rows += 64) {
                const Codes codes = read(rows), a = nibble<0>(codes), b = nibble<1>(codes);
                const int8_t *at = digits + start + 4 * j;
#pragma GCC unroll 2
                for (int plane = 0; plane < Planes; plane++, at += columns) {
                    dot(low_part[plane], a, word_at(at));
                    dot(high_part[plane], b, word_at(Bits == 4 ? at + group_size / 2 : at));
                }
            }
            Ints total = {};
            for (int plane = 0; plane < Planes; plane++)
                total = total * 256 + ints(low_part[plane]) + ints(high_part[plane]) * (Bits == 4 ? 1 : 16);
            const uint16_t *scales = (const uint16_t *)rows;
            weighted += __builtin_convertvector(total, Floats) * from_bfloat16(scales);
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
