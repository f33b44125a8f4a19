// A model as the forward pass sees it: sizes and pointers into memory that the caller owns, and a sequence's keys and values.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "maple.h"

namespace maple {

// What the caller hands over; the binding's structures of the same names hold the same members in the same order.
struct Layer {
    const uint8_t *qkv, *out, *gate_up, *down; // packed codes; gate_up and down: all experts, one after the other
    const float *qkv_scale, *out_scale, *gate_up_scale, *down_scale;
    const uint16_t *router; // bfloat16 [experts][hidden]
    const float *attention_norm, *expert_norm, *query_gain, *key_gain;
    int32_t window; // keys that a query sees; 0 is all
    int32_t turns;  // whether queries and keys are turned by their positions
};

// 4 or 8 bits: codes, then scales and biases a group of columns, all by rows (embedding), or as affine_rows reads them (head).
// 16 bits: bfloat16 by rows, scales and biases unused.
struct Matrix {
    const void *rows;
    const uint16_t *scales, *biases;
    int32_t bits, group_size;
};

struct Description {
    int32_t vocabulary, hidden, heads, kv_heads, head_dim, width, experts, experts_per_token, layers, rotary_half;
    int32_t planes, threads, chunk, shares_of_chosen; // chunk: most tokens of a call; shares_of_chosen: norm_topk_prob
    float eps, theta, limit;
    const Layer *layer;
    const float *final_norm;
    Matrix embedding, head;
};

inline int64_t rounded_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Memory of a size that is known once, aligned for vectors.
template <class T> class Buffer {
  public:
    Buffer() = default;
    explicit Buffer(size_t count) : memory_((T *)::operator new(count * sizeof(T) + 64, std::align_val_t(64))) {
        __builtin_memset((void *)memory_.get(), 0, count * sizeof(T) + 64);
    }
    T *get() const { return memory_.get(); }
    T *operator+(size_t offset) const { return memory_.get() + offset; }
    T &operator[](size_t index) const { return memory_.get()[index]; }

  private:
    struct Free {
        void operator()(T *memory) const { ::operator delete((void *)memory, std::align_val_t(64)); }
    };
    std::unique_ptr<T, Free> memory_;
};

// The keys and values of one sequence. A sliding layer keeps as many positions as its window and one call's tokens need.
class Cache {
  public:
    Cache(const Description &description, int64_t context);
    ~Cache();
    Cache(const Cache &) = delete;
    Cache &operator=(const Cache &) = delete;

    const Memory &memory(int layer, int kv_head) const { return memories_[layer * kv_heads_ + kv_head]; }

    // A block is what the layers keep of kLanes positions that begin at a multiple of kLanes.
    int64_t block_bytes() const;
    void copy_out(int64_t position, uint8_t *block) const;
    // Only what a sequence that goes on at `length` can see.
    void copy_in(int64_t position, const uint8_t *block, int64_t length);

    int64_t length = 0;
    const int64_t context;
    std::atomic<bool> interrupted{false}; // set by another thread: calls return soon, and what they return means nothing

  private:
    int kv_heads_, head_dim_;
    std::vector<int32_t> windows_; // of the layers
    std::vector<Memory> memories_;
    void *block_ = nullptr;
    size_t size_ = 0;
};

// A vector in fixed point: x ~ scale * q, sum is the sum of all q.
struct Fixed {
    int8_t *digits;
    float scale;
    int32_t sum;
};

class Team; // the threads of one call
struct Own; // what a thread keeps to itself

class Model {
  public:
    Model(const Description &description, const Kernels &kernels);
    ~Model();

    // The logits behind the last token, or with `every` behind each, [count][vocabulary]; the cache grows by count <= chunk.
    void forward(Cache &cache, const int32_t *token_ids, int count, float *logits, bool every);

    const Description description;

  private:
    void embed(int32_t token_id, float *x) const;
    void choose(const float *router_logits, int32_t *ids, float *shares) const;
    void find_angles(int64_t position, float *cos, float *sin) const;
    void remember(const Layer &layer, const Cache &cache, int index, int64_t position, int kv_head, const float *qkv,
                  const float *cos, const float *sin, Own &own) const;
    void decode(Cache &cache, int32_t token_id, float *logits, Own &own, Team &team);
    void attend_alone(const Layer &layer, const Cache &cache, int index, int kv_head, Own &own);
    void experts_alone(const Layer &layer, Own &own, Team &team);
    void prefill(Cache &cache, const int32_t *token_ids, int count, float *logits, bool every, Own &own, Team &team);
    void prefill_attention(const Layer &layer, const Cache &cache, int index, int count, Own &own, Team &team);
    void prefill_experts(const Layer &layer, int count, Own &own, Team &team);
    void sort_by_expert(int count);
    void run_expert(const Layer &layer, int expert, Own &own);
    void head(const float *x, float *logits, Own &own, Team &team) const;
    void fix(const float *x, int columns, Fixed *fixed) const;
    void pack(const Fixed *const *fixed, int count, int columns, int32_t *tile) const;
    void project(const uint8_t *codes, const float *row_scale, int64_t first_group, int64_t last_group, int columns,
                 const int32_t *tiles, const Fixed *const *fixed, int count, float *const *y, bool add) const;

    const Kernels &k_;
    const int qkv_rows_, hidden_rows_, gate_up_rows_, mixed_; // padded to whole groups; mixed_: heads * head_dim
    const int columns_;                                       // the longest vector that is put into fixed point
    const int tokens_per_tile_;
    std::vector<std::unique_ptr<Own>> own_;
    // Shared by the threads: a token's vectors, for as many tokens as a call may bring.
    Buffer<float> x_, normed_, qkv_, mixed_out_, projected_, router_logits_, shares_, expert_out_, gate_up_, cos_, sin_;
    Buffer<int32_t> ids_, tiles_, entries_, begins_, order_;
    Buffer<int8_t> digits_;
    std::vector<Fixed> fixed_;
    std::vector<const Fixed *> fixed_at_;
    int used_experts_ = 0;
    bool stopping_ = false; // the call is interrupted: what thread 0 saw before a meeting, so that all leave together
};

} // namespace maple
