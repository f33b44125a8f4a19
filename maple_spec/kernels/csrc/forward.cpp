// The forward pass. One token and many take different ways through the same kernels, so that both give the same numbers.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model.h"
#include "team.h"

namespace maple {

constexpr int kExpertTokens = 64; // tokens that an expert serves at once: their vectors stay in the second-level cache

struct Own {
    Own(int hidden, int columns, int head_dim, int gate_up_rows, int experts_per_token, int head_groups)
        : x(hidden), normed(hidden), activated(columns), key(head_dim), queries((size_t)kQueries * head_dim),
          gate_up((size_t)kExpertTokens * gate_up_rows), shares(experts_per_token), ids(experts_per_token),
          digits((size_t)kExpertTokens * 2 * columns), tile((size_t)kExpertTokens * columns / 2), sums(head_groups) {}

    Buffer<float> x, normed, activated, key, queries, gate_up, shares;
    Buffer<int32_t> ids;
    Buffer<int8_t> digits;
    Buffer<int32_t> tile, sums;
    std::vector<float> scores;

    float *scores_for(int64_t blocks) {
        scores.resize(std::max(scores.size(), (size_t)(blocks * kLanes * kQueries)));
        return scores.data();
    }
};

static int padded_rows(int64_t rows) { return (int)rounded_up(rows, kGroupRows); }

Model::Model(const Description &d, const Kernels &kernels)
    : description(d), k_(kernels), qkv_rows_(padded_rows((d.heads + 2 * d.kv_heads) * d.head_dim)),
      hidden_rows_(padded_rows(d.hidden)), gate_up_rows_(padded_rows(2 * d.width)), mixed_(d.heads * d.head_dim),
      columns_(std::max(std::max(d.hidden, d.width), d.heads * d.head_dim)), tokens_per_tile_(kTile / d.planes),
      x_((size_t)d.chunk * hidden_rows_), normed_((size_t)d.chunk * d.hidden), qkv_((size_t)d.chunk * qkv_rows_),
      mixed_out_((size_t)d.chunk * mixed_), projected_(hidden_rows_), router_logits_((size_t)d.chunk * d.experts),
      shares_((size_t)d.chunk * d.experts_per_token), expert_out_((size_t)d.chunk * d.experts_per_token * hidden_rows_),
      gate_up_((size_t)d.experts_per_token * gate_up_rows_), cos_((size_t)d.chunk * (d.rotary_half + 1)),
      sin_((size_t)d.chunk * (d.rotary_half + 1)), ids_((size_t)d.chunk * d.experts_per_token),
      tiles_((size_t)d.chunk * d.planes * columns_ / 4), entries_((size_t)d.chunk * d.experts_per_token),
      begins_(d.experts + 1), order_(d.experts), digits_((size_t)d.chunk * 2 * columns_), fixed_(d.chunk), fixed_at_(d.chunk) {
    for (int i = 0; i < d.chunk; i++) {
        fixed_[i].digits = digits_ + (size_t)i * 2 * columns_;
        fixed_at_[i] = &fixed_[i];
    }
    const int head_groups = d.head.bits == 16 ? 1 : d.hidden / d.head.group_size;
    for (int t = 0; t < d.threads; t++)
        own_.emplace_back(new Own(hidden_rows_, columns_, d.head_dim, gate_up_rows_, d.experts_per_token, head_groups));
}

Model::~Model() = default;

static float widened(uint16_t bfloat16) {
    const uint32_t bits = (uint32_t)bfloat16 << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

void Model::embed(int32_t token_id, float *x) const {
    const Matrix &m = description.embedding;
    const int hidden = description.hidden;
    if (m.bits == 16) {
        const uint16_t *row = (const uint16_t *)m.rows + (size_t)token_id * hidden;
        for (int i = 0; i < hidden; i++) x[i] = widened(row[i]);
        return;
    }
    const int groups = hidden / m.group_size;
    const uint8_t *row = (const uint8_t *)m.rows + (size_t)token_id * hidden * m.bits / 8;
    const uint16_t *scales = m.scales + (size_t)token_id * groups, *biases = m.biases + (size_t)token_id * groups;
    for (int i = 0; i < hidden; i++) {
        const int code = m.bits == 8 ? row[i] : (row[i / 2] >> (i % 2 * 4)) & 15;
        x[i] = (float)code * widened(scales[i / m.group_size]) + widened(biases[i / m.group_size]);
    }
}

void Model::find_angles(int64_t position, float *cos, float *sin) const {
    const int half = description.rotary_half;
    for (int j = 0; j < half; j++) {
        const double angle = (double)position * std::pow((double)description.theta, -(double)j / half);
        cos[j] = (float)std::cos(angle);
        sin[j] = (float)std::sin(angle);
    }
}

void Model::choose(const float *logits, int32_t *ids, float *shares) const {
    const int experts = description.experts, top = description.experts_per_token;
    for (int j = 0; j < top; j++) {
        int best = -1;
        for (int e = 0; e < experts; e++) {
            if (best >= 0 && !(logits[e] > logits[best])) continue;
            bool taken = false;
            for (int i = 0; i < j; i++) taken |= ids[i] == e;
            if (!taken) best = e;
        }
        ids[j] = best;
    }
    float total = 0;
    for (int j = 0; j < top; j++) total += shares[j] = std::exp(logits[ids[j]] - logits[ids[0]]);
    if (!description.shares_of_chosen) {
        total = 0;
        for (int e = 0; e < experts; e++) total += std::exp(logits[e] - logits[ids[0]]);
    }
    for (int j = 0; j < top; j++) shares[j] /= total;
}

void Model::fix(const float *x, int columns, Fixed *fixed) const {
    k_.quantise(x, columns, description.planes, fixed->digits, &fixed->scale, &fixed->sum);
}

// The digits of count <= tokens_per_tile_ vectors beside each other, word by word.
void Model::pack(const Fixed *const *fixed, int count, int columns, int32_t *tile) const {
    const int planes = description.planes, width = count * planes;
    for (int i = 0; i < count; i++)
        for (int plane = 0; plane < planes; plane++) {
            const int8_t *digits = fixed[i]->digits + (size_t)plane * columns;
            int32_t *to = tile + i * planes + plane;
            for (int word = 0; word < columns / 4; word++) std::memcpy(to + (size_t)word * width, digits + 4 * word, 4);
        }
}

// Rows of some groups times count vectors, of which tiles holds the packed digits; y [i] is the start of a vector's rows.
void Model::project(const uint8_t *codes, const float *row_scale, int64_t first_group, int64_t last_group, int columns,
                    const int32_t *tiles, const Fixed *const *fixed, int count, float *const *y, bool add) const {
    const int planes = description.planes;
    int32_t sums[kTile * kGroupRows];
    float rows[kGroupRows];
    for (int64_t group = first_group; group < last_group; group++) {
        const uint8_t *at = codes + group * kGroupRows * columns / 4;
        for (int first = 0; first < count; first += tokens_per_tile_) {
            const int tokens = std::min(tokens_per_tile_, count - first);
            k_.ternary_tile(at, columns, tokens * planes, tiles + (size_t)first * planes * columns / 4, sums);
            for (int i = 0; i < tokens; i++) {
                const Fixed &vector = *fixed[first + i];
                float *to = y[first + i] + group * kGroupRows;
                const float *scale = row_scale + group * kGroupRows;
                const int32_t *of_token = sums + i * planes * kGroupRows;
                k_.finish(of_token, planes, vector.scale, vector.sum, scale, add ? rows : to);
                if (add) k_.add_scaled(to, 1.0f, rows, kGroupRows);
            }
        }
    }
}

void Model::remember(const Layer &layer, const Cache &cache, int index, int64_t position, int kv_head, const float *qkv,
                     const float *cos, const float *sin, Own &own) const {
    const Description &d = description;
    const float *key = qkv + (d.heads + kv_head) * d.head_dim, *value = key + d.kv_heads * d.head_dim;
    k_.norm_and_turn(key, layer.key_gain, d.head_dim, d.eps, cos, sin, layer.turns ? d.rotary_half : 0, 1.0f, own.key.get());
    k_.remember(&cache.memory(index, kv_head), d.head_dim, position, own.key.get(), value);
}

static int64_t first_seen(const Layer &layer, int64_t position) {
    return layer.window > 0 ? std::max<int64_t>(0, position - layer.window + 1) : 0;
}

void Model::head(const float *x, float *logits, Own &own, Team &team) const {
    const Description &d = description;
    k_.norm(x, d.final_norm, d.hidden, d.eps, own.normed.get());
    if (d.head.bits == 16) {
        const int64_t begin = team.begin(d.vocabulary), end = team.end(d.vocabulary);
        const uint16_t *rows = (const uint16_t *)d.head.rows + begin * d.hidden;
        k_.bfloat16_rows(rows, (int)(end - begin), d.hidden, 1, own.normed.get(), logits + begin, 0);
        return;
    }
    float scale;
    k_.quantise_plain(own.normed.get(), d.hidden, d.head.group_size, d.planes, own.digits.get(), &scale, own.sums.get());
    const int64_t groups = rounded_up(d.vocabulary, kHeadRows) / kHeadRows, begin = team.begin(groups), end = team.end(groups);
    const size_t group_bytes = (size_t)kHeadRows * d.hidden * d.head.bits / 8 + (size_t)4 * kHeadRows * (d.hidden / d.head.group_size);
    const int64_t whole = std::min(end, (int64_t)d.vocabulary / kHeadRows);
    const uint8_t *rows = (const uint8_t *)d.head.rows;
    k_.affine_rows(rows + begin * group_bytes, (int)(whole - begin), d.hidden, d.head.group_size, d.head.bits, d.planes,
                   own.digits.get(), own.sums.get(), scale, logits + begin * kHeadRows);
    if (whole < end) { // the last rows do not fill a group
        float last[kHeadRows];
        k_.affine_rows(rows + whole * group_bytes, 1, d.hidden, d.head.group_size, d.head.bits, d.planes, own.digits.get(),
                       own.sums.get(), scale, last);
        std::memcpy(logits + whole * kHeadRows, last, (size_t)(d.vocabulary - whole * kHeadRows) * sizeof(float));
    }
}

void Model::attend_alone(const Layer &layer, const Cache &cache, int index, int kv_head, Own &own) {
    const Description &d = description;
    const int64_t position = cache.length, first = first_seen(layer, position);
    remember(layer, cache, index, position, kv_head, qkv_.get(), cos_.get(), sin_.get(), own);
    const int group = d.heads / d.kv_heads;
    float *scores = own.scores_for(position / kLanes - first / kLanes + 1);
    for (int begin = 0; begin < group; begin += kQueries) {
        const int count = std::min(kQueries, group - begin), head = kv_head * group + begin;
        int64_t firsts[kQueries], lasts[kQueries];
        for (int i = 0; i < count; i++) {
            k_.norm_and_turn(qkv_ + (size_t)(head + i) * d.head_dim, layer.query_gain, d.head_dim, d.eps, cos_.get(), sin_.get(),
                             layer.turns ? d.rotary_half : 0, 1.0f / std::sqrt((float)d.head_dim), own.queries + i * d.head_dim);
            firsts[i] = first, lasts[i] = position;
        }
        k_.attend(&cache.memory(index, kv_head), d.head_dim, count, own.queries.get(), firsts, lasts, scores,
                  mixed_out_ + (size_t)head * d.head_dim);
    }
}

void Model::experts_alone(const Layer &layer, Own &own, Team &team) {
    const Description &d = description;
    const int top = d.experts_per_token;
    const int64_t up_groups = gate_up_rows_ / kGroupRows, down_groups = hidden_rows_ / kGroupRows;
    Fixed fixed{own.digits.get(), 0, 0};
    fix(own.normed.get(), d.hidden, &fixed);
    for (int64_t unit = team.begin(top * up_groups), end = team.end(top * up_groups); unit < end;) {
        const int64_t j = unit / up_groups, group = unit % up_groups, count = std::min(up_groups - group, end - unit);
        const int64_t row = (int64_t)own.ids[j] * gate_up_rows_ + group * kGroupRows;
        k_.ternary_rows(layer.gate_up + row * d.hidden / 4, layer.gate_up_scale + row, (int)count, d.hidden, d.planes,
                        fixed.digits, fixed.scale, fixed.sum, gate_up_ + j * gate_up_rows_ + group * kGroupRows);
        unit += count;
    }
    team.meet();
    for (int64_t unit = team.begin(top * down_groups), end = team.end(top * down_groups); unit < end;) {
        const int64_t j = unit / down_groups, group = unit % down_groups, count = std::min(down_groups - group, end - unit);
        const int64_t row = (int64_t)own.ids[j] * hidden_rows_ + group * kGroupRows;
        const float *gate = gate_up_ + j * gate_up_rows_;
        k_.swiglu(gate, gate + d.width, d.width, d.limit, own.activated.get());
        fix(own.activated.get(), d.width, &fixed);
        k_.ternary_rows(layer.down + row * d.width / 4, layer.down_scale + row, (int)count, d.width, d.planes, fixed.digits,
                        fixed.scale, fixed.sum, expert_out_ + j * hidden_rows_ + group * kGroupRows);
        unit += count;
    }
    team.meet();
    for (int j = 0; j < top; j++) k_.add_scaled(own.x.get(), own.shares[j], expert_out_ + (size_t)j * hidden_rows_, hidden_rows_);
}

// One token. Every thread keeps the residual stream to itself and computes it whole: that is cheaper than sharing it.
void Model::decode(Cache &cache, int32_t token_id, float *logits, Own &own, Team &team) {
    const Description &d = description;
    const int64_t qkv_groups = qkv_rows_ / kGroupRows, out_groups = hidden_rows_ / kGroupRows;
    Fixed fixed{own.digits.get(), 0, 0};
    embed(token_id, own.x.get());
    if (team.index == 0) find_angles(cache.length, cos_.get(), sin_.get());
    for (int index = 0; index < d.layers; index++) {
        const Layer &layer = d.layer[index];
        k_.norm(own.x.get(), layer.attention_norm, d.hidden, d.eps, own.normed.get());
        fix(own.normed.get(), d.hidden, &fixed);
        const int64_t group = team.begin(qkv_groups);
        k_.ternary_rows(layer.qkv + group * kGroupRows * d.hidden / 4, layer.qkv_scale + group * kGroupRows,
                        (int)(team.end(qkv_groups) - group), d.hidden, d.planes, fixed.digits, fixed.scale, fixed.sum,
                        qkv_ + group * kGroupRows);
        team.meet();
        for (int64_t kv_head = team.begin(d.kv_heads); kv_head < team.end(d.kv_heads); kv_head++)
            attend_alone(layer, cache, index, (int)kv_head, own);
        team.meet();
        fix(mixed_out_.get(), mixed_, &fixed);
        const int64_t out_group = team.begin(out_groups);
        k_.ternary_rows(layer.out + out_group * kGroupRows * mixed_ / 4, layer.out_scale + out_group * kGroupRows,
                        (int)(team.end(out_groups) - out_group), mixed_, d.planes, fixed.digits, fixed.scale, fixed.sum,
                        projected_ + out_group * kGroupRows);
        team.meet();
        k_.add_scaled(own.x.get(), 1.0f, projected_.get(), hidden_rows_);
        k_.norm(own.x.get(), layer.expert_norm, d.hidden, d.eps, own.normed.get());
        const int64_t expert = team.begin(d.experts);
        k_.bfloat16_rows(layer.router + expert * d.hidden, (int)(team.end(d.experts) - expert), d.hidden, 1, own.normed.get(),
                         router_logits_ + expert, 0);
        team.meet();
        choose(router_logits_.get(), own.ids.get(), own.shares.get());
        experts_alone(layer, own, team);
    }
    head(own.x.get(), logits, own, team);
}

void Model::prefill_attention(const Layer &layer, const Cache &cache, int index, int count, Own &own, Team &team) {
    const Description &d = description;
    const int half = d.rotary_half, turned = layer.turns ? half : 0, group = d.heads / d.kv_heads;
    const float factor = 1.0f / std::sqrt((float)d.head_dim);
    for (int64_t i = team.begin(count); i < team.end(count); i++) {
        float *qkv = qkv_ + i * qkv_rows_;
        const float *cos = cos_ + i * half, *sin = sin_ + i * half;
        for (int kv_head = 0; kv_head < d.kv_heads; kv_head++)
            remember(layer, cache, index, cache.length + i, kv_head, qkv, cos, sin, own);
        for (int h = 0; h < d.heads; h++) {
            k_.norm_and_turn(qkv + h * d.head_dim, layer.query_gain, d.head_dim, d.eps, cos, sin, turned, factor, own.key.get());
            std::memcpy(qkv + h * d.head_dim, own.key.get(), (size_t)d.head_dim * sizeof(float));
        }
    }
    team.share();
    team.meet();
    // A unit: some tokens' queries of one key-value head, which read its keys together.
    const int tokens = std::max(1, kQueries / group), tiles = (count + tokens - 1) / tokens;
    for (int unit; (unit = team.next()) < tiles * d.kv_heads;) {
        const int begin = unit / d.kv_heads * tokens, kv_head = unit % d.kv_heads, end = std::min(count, begin + tokens);
        const int64_t from = first_seen(layer, cache.length + begin), to = cache.length + end - 1;
        float *scores = own.scores_for(to / kLanes - from / kLanes + 1);
        for (int start = 0; start < group; start += kQueries) {
            const int heads = std::min(kQueries, group - start);
            int64_t firsts[kQueries], lasts[kQueries];
            float out[kQueries * 1024];
            int queries = 0;
            for (int i = begin; i < end; i++)
                for (int h = 0; h < heads; h++, queries++) {
                    std::memcpy(own.queries + queries * d.head_dim,
                                qkv_ + (size_t)i * qkv_rows_ + (kv_head * group + start + h) * d.head_dim,
                                (size_t)d.head_dim * sizeof(float));
                    lasts[queries] = cache.length + i;
                    firsts[queries] = first_seen(layer, lasts[queries]);
                }
            k_.attend(&cache.memory(index, kv_head), d.head_dim, queries, own.queries.get(), firsts, lasts, scores, out);
            queries = 0;
            for (int i = begin; i < end; i++)
                for (int h = 0; h < heads; h++, queries++)
                    std::memcpy(mixed_out_ + (size_t)i * mixed_ + (kv_head * group + start + h) * d.head_dim,
                                out + queries * d.head_dim, (size_t)d.head_dim * sizeof(float));
        }
    }
    team.meet();
}

// entries_: token * experts_per_token + place, by expert; order_: the experts that are used, those of most tokens first.
void Model::sort_by_expert(int count) {
    const int experts = description.experts, all = count * description.experts_per_token;
    std::fill(begins_.get(), begins_ + experts + 1, 0);
    for (int i = 0; i < all; i++) begins_[ids_[i] + 1]++;
    used_experts_ = 0;
    for (int e = 0; e < experts; e++)
        if (begins_[e + 1]) order_[used_experts_++] = e;
    std::stable_sort(order_.get(), order_ + used_experts_, [&](int a, int b) { return begins_[a + 1] > begins_[b + 1]; });
    for (int e = 0; e < experts; e++) begins_[e + 1] += begins_[e];
    std::vector<int32_t> next(begins_.get(), begins_ + experts);
    for (int i = 0; i < all; i++) entries_[next[ids_[i]]++] = i;
}

void Model::run_expert(const Layer &layer, int expert, Own &own) {
    const Description &d = description;
    const uint8_t *gate_up = layer.gate_up + (int64_t)expert * gate_up_rows_ * d.hidden / 4;
    const uint8_t *down = layer.down + (int64_t)expert * hidden_rows_ * d.width / 4;
    for (int begin = begins_[expert]; begin < begins_[expert + 1]; begin += kExpertTokens) {
        const int count = std::min(kExpertTokens, begins_[expert + 1] - begin);
        const Fixed *inputs[kExpertTokens], *middles[kExpertTokens];
        Fixed middle[kExpertTokens];
        float *ups[kExpertTokens], *outs[kExpertTokens];
        for (int i = 0; i < count; i++) {
            const int entry = entries_[begin + i];
            inputs[i] = &fixed_[entry / d.experts_per_token];
            ups[i] = own.gate_up + (size_t)i * gate_up_rows_;
            outs[i] = expert_out_ + (size_t)entry * hidden_rows_;
            middle[i].digits = own.digits + (size_t)i * 2 * columns_;
            middles[i] = &middle[i];
        }
        for (int i = 0; i < count; i += tokens_per_tile_)
            pack(inputs + i, std::min(tokens_per_tile_, count - i), d.hidden, own.tile + (size_t)i * d.planes * d.hidden / 4);
        project(gate_up, layer.gate_up_scale + (int64_t)expert * gate_up_rows_, 0, gate_up_rows_ / kGroupRows, d.hidden,
                own.tile.get(), inputs, count, ups, false);
        for (int i = 0; i < count; i++) {
            k_.swiglu(ups[i], ups[i] + d.width, d.width, d.limit, own.activated.get());
            fix(own.activated.get(), d.width, &middle[i]);
        }
        for (int i = 0; i < count; i += tokens_per_tile_)
            pack(middles + i, std::min(tokens_per_tile_, count - i), d.width, own.tile + (size_t)i * d.planes * d.width / 4);
        project(down, layer.down_scale + (int64_t)expert * hidden_rows_, 0, hidden_rows_ / kGroupRows, d.width, own.tile.get(),
                middles, count, outs, false);
    }
}

void Model::prefill_experts(const Layer &layer, int count, Own &own, Team &team) {
    const Description &d = description;
    const int top = d.experts_per_token;
    if (team.index == 0) sort_by_expert(count);
    team.share();
    team.meet();
    for (int unit; (unit = team.next()) < used_experts_;) run_expert(layer, order_[unit], own);
    team.meet();
    for (int64_t i = team.begin(count); i < team.end(count); i++)
        for (int j = 0; j < top; j++)
            k_.add_scaled(x_ + i * hidden_rows_, shares_[i * top + j], expert_out_ + (i * top + j) * hidden_rows_, hidden_rows_);
}

// Many tokens: rows are read once for all of them, each expert once for all that chose it.
void Model::prefill(Cache &cache, const int32_t *token_ids, int count, float *logits, bool every, Own &own, Team &team) {
    const Description &d = description;
    const int per_tile = tokens_per_tile_, tiles = (count + per_tile - 1) / per_tile;
    const int64_t first_tile = team.begin(tiles), last_tile = team.end(tiles);
    std::vector<float *> rows(count);
    const auto fix_tiles = [&](const float *from, int64_t stride, int columns) {
        for (int64_t tile = first_tile; tile < last_tile; tile++) {
            const int begin = (int)tile * per_tile, tokens = std::min(per_tile, count - begin);
            for (int i = begin; i < begin + tokens; i++) fix(from + i * stride, columns, &fixed_[i]);
            pack(&fixed_at_[begin], tokens, columns, tiles_ + (size_t)begin * d.planes * columns / 4);
        }
    };
    const auto norm_tiles = [&](const float *weight) {
        for (int64_t i = first_tile * per_tile; i < std::min<int64_t>(count, last_tile * per_tile); i++)
            k_.norm(x_ + i * hidden_rows_, weight, d.hidden, d.eps, normed_ + i * d.hidden);
    };
    const auto project_all = [&](const uint8_t *codes, const float *scale, int columns, const Buffer<float> &to, int padded, bool add) {
        for (int i = 0; i < count; i++) rows[i] = to + (size_t)i * padded;
        const int64_t groups = padded / kGroupRows;
        project(codes, scale, team.begin(groups), team.end(groups), columns, tiles_.get(), fixed_at_.data(), count, rows.data(), add);
    };
    for (int64_t i = team.begin(count); i < team.end(count); i++) {
        embed(token_ids[i], x_ + i * hidden_rows_);
        find_angles(cache.length + i, cos_ + i * d.rotary_half, sin_ + i * d.rotary_half);
    }
    team.meet();
    for (int index = 0; index < d.layers; index++) {
        const Layer &layer = d.layer[index];
        norm_tiles(layer.attention_norm);
        fix_tiles(normed_.get(), d.hidden, d.hidden);
        if (team.index == 0) stopping_ = cache.interrupted.load(std::memory_order_relaxed);
        team.meet();
        if (stopping_) return;
        project_all(layer.qkv, layer.qkv_scale, d.hidden, qkv_, qkv_rows_, false);
        team.meet();
        prefill_attention(layer, cache, index, count, own, team);
        fix_tiles(mixed_out_.get(), mixed_, mixed_);
        team.meet();
        project_all(layer.out, layer.out_scale, mixed_, x_, hidden_rows_, true);
        team.meet();
        norm_tiles(layer.expert_norm);
        for (int64_t tile = first_tile; tile < last_tile; tile++) {
            const int64_t begin = tile * per_tile, tokens = std::min<int64_t>(per_tile, count - begin);
            k_.bfloat16_rows(layer.router, d.experts, d.hidden, (int)tokens, normed_ + begin * d.hidden,
                             router_logits_ + begin * d.experts, d.experts);
            for (int64_t i = begin; i < begin + tokens; i++) {
                fix(normed_ + i * d.hidden, d.hidden, &fixed_[i]);
                choose(router_logits_ + i * d.experts, ids_ + i * d.experts_per_token, shares_ + i * d.experts_per_token);
            }
        }
        team.meet();
        prefill_experts(layer, count, own, team);
        team.meet();
    }
    for (int i = every ? 0 : count - 1; i < count; i++)
        head(x_ + (size_t)i * hidden_rows_, logits + (every ? (size_t)i * d.vocabulary : 0), own, team);
}

void Model::forward(Cache &cache, const int32_t *token_ids, int count, float *logits, bool every) {
    run_team(description.threads, [&](Team &team) {
        Own &own = *own_[team.index];
        if (count == 1) decode(cache, token_ids[0], logits, own, team);
        else prefill(cache, token_ids, count, logits, every, own, team);
    });
    cache.length += count;
}

} // namespace maple
